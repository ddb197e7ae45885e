package consensus

import (
	"bytes"
	"testing"

	"skein/sqlstate"
)

func TestMetaKeys(t *testing.T) {
	s := newMetaState()
	secret := func(b byte) []byte { return bytes.Repeat([]byte{b}, MinSecretBytes) }
	add := func(id string, b byte, first bool) metaAnswer {
		return applyTo(t, s, MetaAddKey, AddKey{RequestID: id, Secret: secret(b), First: first})
	}
	mustReject(t, applyTo(t, s, MetaAddKey, AddKey{RequestID: "short", Secret: []byte("short")}), sqlstate.InvalidParameter)
	version := mustAccept(t, add("a", 1, true)).Version
	// The second node to start finds a key.
	if now := mustAccept(t, add("b", 2, true)).Version; now != version {
		t.Errorf("version %d after %d", now, version)
	}
	before := s.snapshot()
	for i := byte(3); i < 7; i++ {
		mustAccept(t, add(string('c'+rune(i)), i, false))
	}
	if len(before.Keys) != 1 || before.Keys[0].ID != 1 || before.Keys[0].Secret[0] != 1 {
		t.Errorf("an earlier snapshot has changed to %v", before.Keys)
	}
	keys := s.snapshot().Keys
	if len(keys) != keptKeys || keys[0].ID != 3 || keys[2].ID != 5 || keys[2].Secret[0] != 6 {
		t.Errorf("keys are %v", keys)
	}
	// A restart finds them again.
	again := newMetaState()
	order, records := s.takeDirty()
	for _, key := range order {
		if err := again.load([]byte(key), records[key]); err != nil {
			t.Fatal(err)
		}
	}
	if got := again.snapshot().Keys; len(got) != keptKeys || got[2].ID != 5 || !bytes.Equal(got[2].Secret, keys[2].Secret) {
		t.Errorf("read back: %v", got)
	}
}
