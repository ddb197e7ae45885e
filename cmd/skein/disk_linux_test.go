package main

import (
	"fmt"
	"syscall"
	"testing"
	"unsafe"
)

// limitFiles sets how large a process's files may grow.
func limitFiles(t *testing.T, pid int, bytes uint64) {
	t.Helper()
	limit := syscall.Rlimit{Cur: bytes, Max: bytes}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
}

// TestDiskTakesNoMore lets the disk refuse to grow the files of a running
// server, the Raft log's and the store's: writes fail, and a restart has all
// that was acknowledged.
func TestDiskTakesNoMore(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	server := startDev(t, data)
	c := dial(t, server.flight)
	mustExec(t, c, crashTables["single"])
	h := &history{attempted: map[string]batch{}, acked: map[string]bool{}}
	write := func(i int) error {
		b := batch{fmt.Sprint("b", i), "single", 20_000}
		h.attempt(b)
		err := b.ingest(testContext(t), c)
		if err == nil {
			h.ack(b)
		}
		return err
	}
	for i := range 3 {
		if err := write(i); err != nil {
			t.Fatal(err)
		}
	}
	limitFiles(t, server.cmd.Process.Pid, 1<<20)
	var failed error
	for i := 3; failed == nil && i < 500; i++ {
		failed = write(i)
	}
	if failed == nil {
		t.Fatal("writes go on without space")
	}
	t.Logf("%d of %d batches acknowledged, then: %v", len(h.acked), len(h.attempted), failed)
	server.kill()
	server = startDev(t, data)
	if err := h.check(testContext(t), dial(t, server.flight), []string{"single"}); err != nil {
		t.Fatal(err)
	}
	server.stop()
}
