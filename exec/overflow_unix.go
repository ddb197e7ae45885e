//go:build unix

package exec

import (
	"fmt"
	"os"
	"syscall"
)

func mapMemory(file *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// unmapMemory cannot fail for a whole mapping that mapMemory made.
func unmapMemory(region []byte) {
	if err := syscall.Munmap(region); err != nil {
		panic(fmt.Sprintf("unmapping %d bytes: %v", len(region), err))
	}
}
