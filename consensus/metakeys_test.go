package consensus

import (
	"bytes"
	"strconv"
	"testing"

	"skein/sqlstate"
)

func TestMetaKeys(t *testing.T) {
	s := newMetaState()
	secret := func(b byte) []byte { return bytes.Repeat([]byte{b}, MinSecretBytes) }
	requests := 0
	add := func(b byte, first bool, at int64) metaAnswer {
		requests++
		return applyTo(t, s, MetaAddKey, AddKey{RequestID: strconv.Itoa(requests), Secret: secret(b), First: first, Unix: at, Keep: 100})
	}
	mustReject(t, applyTo(t, s, MetaAddKey, AddKey{RequestID: "short", Secret: []byte("short")}), sqlstate.InvalidParameter)
	version := mustAccept(t, add(1, true, 1000)).Version
	// The second node to start finds a key.
	if now := mustAccept(t, add(2, true, 1000)).Version; now != version {
		t.Errorf("version %d after %d", now, version)
	}
	before := s.snapshot()
	// Each key is valid for 100 ms after it was replaced: of those replaced at 1010
	// and 1060 the second is, at 1120.
	for i, at := range []int64{1010, 1060, 1120} {
		mustAccept(t, add(byte(3+i), false, at))
	}
	if len(before.Keys) != 1 || before.Keys[0].ID != 1 || before.Keys[0].Secret[0] != 1 || before.Keys[0].ValidUntil != 0 {
		t.Errorf("an earlier snapshot has changed to %v", before.Keys)
	}
	keys := s.snapshot().Keys
	if len(keys) != 3 || keys[0].ID != 2 || keys[0].ValidUntil != 1160 || keys[1].ValidUntil != 1220 ||
		keys[2].ID != 4 || keys[2].Secret[0] != 5 || keys[2].ValidUntil != 0 {
		t.Errorf("keys are %v", keys)
	}
	// A key is never dropped before its envelopes have run out.
	for range maxKeys - 3 {
		mustAccept(t, add(9, false, 1130))
	}
	full := s.snapshot()
	mustReject(t, add(9, false, 1130), sqlstate.ObjectNotInState)
	if now := s.snapshot(); now.Version != full.Version || len(now.Keys) != maxKeys || now.Keys[maxKeys-1].ValidUntil != 0 {
		t.Errorf("a refused key left %v", now.Keys)
	}
	mustAccept(t, add(9, false, 1161))
	// A restart finds them again.
	again := newMetaState()
	order, records := s.takeDirty()
	for _, key := range order {
		if err := again.load([]byte(key), records[key]); err != nil {
			t.Fatal(err)
		}
	}
	want := s.snapshot().Keys
	if got := again.snapshot().Keys; len(got) != maxKeys || got[0].ID != 3 || got[maxKeys-1].ID != want[maxKeys-1].ID || got[0].ValidUntil != want[0].ValidUntil {
		t.Errorf("read back: %v", got)
	}
}
