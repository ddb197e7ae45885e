package gateway

import (
	"testing"
	"time"

	"skein/sqlstate"
)

func TestHandlesAreBoundedAndExpire(t *testing.T) {
	now := time.Unix(1000, 0)
	h := newHandles[int]("query", 2, time.Minute)
	h.now = func() time.Time { return now }
	first, err := h.put("", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.put("", 2); err != nil {
		t.Fatal(err)
	}
	if _, err := h.put("", 3); sqlstate.CodeOf(err) != sqlstate.TooManyRequests {
		t.Fatalf("third of two handles: %v, want 53400", err)
	}
	if v, err := h.get(first); v != 1 || err != nil {
		t.Fatalf("get = %d, %v", v, err)
	}
	now = now.Add(2 * time.Minute)
	if _, err := h.get(first); sqlstate.CodeOf(err) != sqlstate.InvalidParameter {
		t.Fatalf("expired handle: %v", err)
	}
	id, err := h.put("", 4) // the expired ones make room
	if err != nil {
		t.Fatal(err)
	}
	if v, err := h.take(id); v != 4 || err != nil {
		t.Fatalf("take = %d, %v", v, err)
	}
	if _, err := h.take(id); err == nil {
		t.Fatal("a taken handle is still there")
	}
}
