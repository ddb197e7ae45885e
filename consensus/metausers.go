package consensus

import (
	"context"
	"maps"
	"slices"
	"strings"

	"skein/sqlstate"
)

// Commands about users. Each has a JSON request below and answers a TableReply
// without a table.
const (
	MetaPutUser  = "put_user"  // PutUser
	MetaDropUser = "drop_user" // DropUser
)

const (
	// maxUsers bounds the users of a cluster.
	maxUsers = 10_000
	// maxPasswordHash bounds the encoding of one.
	maxPasswordHash = 1024
)

// User is who may connect to a gateway that asks who its clients are.
type User struct {
	ID        uint64 `json:"id"` // never given out again
	Name      string `json:"name"`
	Superuser bool   `json:"superuser,omitempty"`
	// PasswordHash is as package gateway/auth writes it; "" lets nobody log in.
	PasswordHash string `json:"password_hash,omitempty"`
	// Credential changes with the password: tokens that were given out for another
	// one are void.
	Credential uint64 `json:"credential"`
}

// PutUser makes a user, or changes one: nil fields are left as they are.
type PutUser struct {
	RequestID string `json:"request_id"`
	Name      string `json:"name"`
	// Create makes a user, who must not exist; else the user must exist.
	Create       bool    `json:"create,omitempty"`
	Superuser    *bool   `json:"superuser,omitempty"`
	PasswordHash *string `json:"password_hash,omitempty"`
}

// DropUser removes a user.
type DropUser struct {
	RequestID string `json:"request_id"`
	Name      string `json:"name"`
}

// PutUser makes or changes a user. SQLSTATE 42710 says that the user exists,
// 42704 that it does not, 55006 that nobody would be left who may make users.
func (m *Meta) PutUser(ctx context.Context, r PutUser) (TableReply, error) {
	return m.command(ctx, MetaPutUser, r)
}

// DropUser removes a user, with the SQLSTATEs of PutUser.
func (m *Meta) DropUser(ctx context.Context, r DropUser) (TableReply, error) {
	return m.command(ctx, MetaDropUser, r)
}

// User returns a user by name.
func (s *MetaSnapshot) User(name string) (User, bool) {
	i, ok := slices.BinarySearchFunc(s.Users, name, func(u User, name string) int { return strings.Compare(u.Name, name) })
	if !ok {
		return User{}, false
	}
	return s.Users[i], true
}

// applyUsers runs the commands about users.
func (s *metaState) applyUsers(c MetaCommand) (string, metaAnswer) {
	if c.Command == MetaDropUser {
		return dispatch(s, c.Body, func(r *DropUser) (string, func() metaAnswer) {
			return r.RequestID, func() metaAnswer { return s.dropUser(r) }
		})
	}
	return dispatch(s, c.Body, func(r *PutUser) (string, func() metaAnswer) {
		return r.RequestID, func() metaAnswer { return s.putUser(r) }
	})
}

// reservedUser reports whether a name stands for something else than a user.
func reservedUser(name string) bool {
	switch name {
	case "public", "none", "anonymous", "gateway", "operator":
		return true
	}
	return strings.HasPrefix(name, "pg_") || strings.HasPrefix(name, "node ")
}

func (s *metaState) putUser(r *PutUser) metaAnswer {
	if err := validateName("user", r.Name); err != nil {
		return rejected(err)
	}
	user, known := s.users[r.Name]
	switch {
	case r.Name == "" || reservedUser(r.Name):
		return rejected(sqlstate.New(sqlstate.ReservedName, "user name %q is reserved", r.Name))
	case r.Create && known:
		return rejected(sqlstate.New(sqlstate.DuplicateObject, "user %q already exists", r.Name))
	case !r.Create && !known:
		return rejected(undefinedUser(r.Name))
	case r.Create && len(s.users) >= maxUsers:
		return rejected(sqlstate.New(sqlstate.ProgramLimitExceeded, "there are already %d users", len(s.users)))
	case r.PasswordHash != nil && len(*r.PasswordHash) > maxPasswordHash:
		return rejected(sqlstate.New(sqlstate.InvalidParameter, "the hash of a password has %d bytes, %d are possible", len(*r.PasswordHash), maxPasswordHash))
	}
	user.Name = r.Name
	if r.Superuser != nil {
		user.Superuser = *r.Superuser
	}
	if r.PasswordHash != nil {
		user.PasswordHash = *r.PasswordHash
	}
	if !s.administrable(user) {
		return rejected(sqlstate.New(sqlstate.ObjectInUse, "nobody would be left who may administer users").
			WithHint("The first user has to be a SUPERUSER with a password; make another one before this one stops to be."))
	}
	s.counters.Version++
	if r.Create {
		s.counters.NextUser++
		user.ID = s.counters.NextUser
	}
	if r.Create || r.PasswordHash != nil {
		user.Credential = s.counters.Version
	}
	s.users[user.Name] = user
	s.write(recordUser, user.ID, user)
	return s.accepted(nil)
}

// administrable reports whether somebody can log in and administer users when a
// user is as given.
func (s *metaState) administrable(changed User) bool {
	if changed.Superuser && changed.PasswordHash != "" {
		return true
	}
	for _, u := range s.users {
		if u.Name != changed.Name && u.Superuser && u.PasswordHash != "" {
			return true
		}
	}
	return false
}

func (s *metaState) dropUser(r *DropUser) metaAnswer {
	user, known := s.users[r.Name]
	if !known {
		return rejected(undefinedUser(r.Name))
	}
	if !s.administrable(User{Name: r.Name}) {
		return rejected(sqlstate.New(sqlstate.ObjectInUse, "user %q is the last one who may administer users", r.Name).
			WithHint("Make another SUPERUSER first."))
	}
	s.counters.Version++
	delete(s.users, r.Name)
	s.dirty[recordKey(recordUser, user.ID)] = nil
	return s.accepted(nil)
}

func undefinedUser(name string) *sqlstate.Error {
	return sqlstate.New(sqlstate.UndefinedObject, "user %q does not exist", name)
}

// userList are the users by name.
func (s *metaState) userList() []User {
	list := make([]User, 0, len(s.users))
	for _, name := range slices.Sorted(maps.Keys(s.users)) {
		list = append(list, s.users[name])
	}
	return list
}
