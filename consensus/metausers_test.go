package consensus

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"skein/sqlstate"
)

func TestMetaUsers(t *testing.T) {
	s := newMetaState()
	n := 0
	put := func(name string, create bool, superuser *bool, hash *string) metaAnswer {
		n++
		return applyTo(t, s, MetaPutUser, PutUser{RequestID: fmt.Sprint("r", n), Name: name, Create: create, Superuser: superuser, PasswordHash: hash})
	}
	drop := func(name string) metaAnswer {
		n++
		return applyTo(t, s, MetaDropUser, DropUser{RequestID: fmt.Sprint("r", n), Name: name})
	}
	yes, no, first, second, none := true, false, "hash 1", "hash 2", ""
	// Nobody could make other users.
	mustReject(t, put("ann", true, nil, &first), sqlstate.ObjectInUse)
	mustReject(t, put("ann", true, &yes, nil), sqlstate.ObjectInUse)
	mustAccept(t, put("ann", true, &yes, &first))
	for _, reserved := range []string{"", "pg_x", "public", "anonymous", "gateway", "operator", "node 1"} {
		mustReject(t, put(reserved, true, nil, nil), sqlstate.ReservedName)
	}
	mustReject(t, put("nul\x00", true, nil, nil), sqlstate.InvalidByteSequence)
	long := strings.Repeat("x", maxPasswordHash+1)
	mustReject(t, put("bob", true, nil, &long), sqlstate.InvalidParameter)
	mustReject(t, put("ann", true, nil, &first), sqlstate.DuplicateObject)
	mustReject(t, put("bob", false, nil, &first), sqlstate.UndefinedObject)
	mustReject(t, drop("bob"), sqlstate.UndefinedObject)
	mustAccept(t, put("bob", true, nil, nil))
	before := s.snapshot()
	for _, last := range []metaAnswer{drop("ann"), put("ann", false, &no, nil), put("ann", false, nil, &none)} {
		mustReject(t, last, sqlstate.ObjectInUse)
	}
	ann, _ := s.snapshot().User("ann")
	mustAccept(t, put("ann", false, nil, &second))
	changed, ok := s.snapshot().User("ann")
	if !ok || changed.PasswordHash != second || changed.Credential <= ann.Credential || changed.ID != ann.ID || !changed.Superuser {
		t.Errorf("%+v after %+v", changed, ann)
	}
	if old, _ := before.User("ann"); old != ann {
		t.Errorf("an earlier snapshot has changed to %+v", old)
	}
	mustAccept(t, put("bob", false, &yes, &first))
	mustAccept(t, drop("ann"))
	mustAccept(t, put("ann", true, nil, nil))
	if again, _ := s.snapshot().User("ann"); again.ID == ann.ID || again.Superuser {
		t.Errorf("the user made anew is %+v", again)
	}
	if _, ok := s.snapshot().User("nobody"); ok {
		t.Error("found a user that there is not")
	}
	again := newMetaState()
	order, records := s.takeDirty()
	for _, key := range order {
		if records[key] == nil {
			continue
		}
		if err := again.load([]byte(key), records[key]); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(s.snapshot().Users, again.snapshot().Users); diff != "" || again.counters != s.counters {
		t.Error(diff, again.counters, s.counters)
	}
}
