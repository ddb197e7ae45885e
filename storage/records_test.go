package storage

import (
	"bytes"
	"slices"
	"testing"
)

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir)
	r := s.Records(1)
	other := s.Records(2)
	big := bytes.Repeat([]byte("v"), 3*valueThreshold)
	if err := r.Update(3, []Record{{[]byte("a"), []byte("1")}, {[]byte("b"), big}, {[]byte("c"), nil}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(5, []Record{{[]byte("bb"), []byte("2")}}, [][]byte{[]byte("a"), []byte("zz")}); err != nil {
		t.Fatal(err)
	}
	snap, err := r.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Update(6, nil, [][]byte{[]byte("b")}); err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := snap.Save(&stream, nil); err != nil {
		t.Fatal(err)
	}
	snap.Release()
	if err := other.InstallSnapshot(bytes.NewReader(stream.Bytes()), nil); err == nil {
		t.Error("another group's snapshot was installed")
	}
	if err := r.InstallSnapshot(bytes.NewReader(stream.Bytes()[:stream.Len()-1]), nil); err == nil || r.Applied() != 6 {
		t.Errorf("cut stream: %v, applied %d", err, r.Applied())
	}
	if err := r.InstallSnapshot(bytes.NewReader(stream.Bytes()), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, dir)
	r = s.Records(1)
	if r.Applied() != 5 || s.Records(2).Applied() != 0 || s.Records(1) != r {
		t.Errorf("applied %d", r.Applied())
	}
	var keys []string
	if err := r.Scan([]byte("b"), func(k, v []byte) error { keys = append(keys, string(k)); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(keys, []string{"b", "bb"}) {
		t.Errorf("scan %q", keys)
	}
	if v, ok, err := r.Get([]byte("b")); err != nil || !ok || !bytes.Equal(v, big) {
		t.Errorf("b: %d bytes, %t, %v", len(v), ok, err)
	}
	if v, ok, err := r.Get([]byte("c")); err != nil || !ok || len(v) != 0 {
		t.Errorf("c: %q, %t, %v", v, ok, err)
	}
	if _, ok, err := r.Get([]byte("a")); err != nil || ok {
		t.Errorf("a: %t, %v", ok, err)
	}
}
