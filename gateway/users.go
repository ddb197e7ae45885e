package gateway

import (
	"context"
	"fmt"
	"strings"

	"skein/consensus"
	"skein/gateway/auth"
	"skein/sql"
	"skein/sqlstate"
)

// usersDirectory is where the gateway's Authenticator finds users and keys.
type usersDirectory struct{ g *Server }

func (d usersDirectory) Metadata() *consensus.MetaSnapshot { return d.g.directory.Current().meta }

func (d usersDirectory) Refresh(ctx context.Context) error {
	_, err := d.g.directory.Fresh(ctx)
	return err
}

// createUser runs CREATE USER.
func (s *sqlService) createUser(ctx context.Context, b *sql.CreateUser) error {
	if err := s.gw.mayAdminister(ctx, "create users"); err != nil {
		return err
	}
	request := consensus.PutUser{RequestID: newID(), Name: b.Name, Create: true, Superuser: &b.Superuser}
	if b.Password != "" {
		hash, err := s.passwordHash(ctx, b.Password)
		if err != nil {
			return err
		}
		request.PasswordHash = &hash
	}
	return s.changeUsers(ctx, consensus.MetaPutUser, request)
}

// alterUser runs ALTER USER. Everybody may change the own password.
func (s *sqlService) alterUser(ctx context.Context, b *sql.AlterUser) error {
	own := s.gw.cfg.Identify(ctx).User
	request := consensus.PutUser{RequestID: newID(), Name: b.Name, Superuser: b.Superuser}
	if request.Name == "" {
		request.Name = own
	}
	if request.Name != own || b.Superuser != nil {
		if err := s.gw.mayAdminister(ctx, "change users"); err != nil {
			return err
		}
	}
	if b.Password != nil {
		hash, err := s.passwordHash(ctx, *b.Password)
		if err != nil {
			return err
		}
		request.PasswordHash = &hash
	}
	return s.changeUsers(ctx, consensus.MetaPutUser, request)
}

// dropUsers runs DROP USER.
func (s *sqlService) dropUsers(ctx context.Context, b *sql.DropUser) error {
	if err := s.gw.mayAdminister(ctx, "drop users"); err != nil {
		return err
	}
	snap, err := s.gw.directory.Fresh(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, name := range b.Names {
		_, exists := snap.meta.User(name)
		switch {
		case name == s.gw.cfg.Identify(ctx).User:
			return sqlstate.New(sqlstate.ObjectInUse, "the current user cannot be dropped")
		case exists:
			names = append(names, name)
		case !b.IfExists:
			return sqlstate.New(sqlstate.UndefinedObject, "user %q does not exist", name)
		}
	}
	for _, name := range names {
		err := s.changeUsers(ctx, consensus.MetaDropUser, consensus.DropUser{RequestID: newID(), Name: name})
		if b.IfExists && sqlstate.CodeOf(err) == sqlstate.UndefinedObject { // somebody was quicker
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sqlService) changeUsers(ctx context.Context, command string, request any) error {
	var reply consensus.TableReply
	if err := s.gw.directory.meta(ctx, command, request, &reply); err != nil {
		return err
	}
	return s.gw.directory.waitVersion(ctx, reply.Version)
}

// passwordHash is what is kept of a password, which may be a hash already; "" is
// none.
func (s *sqlService) passwordHash(ctx context.Context, password sql.Password) (string, error) {
	text := string(password)
	switch {
	case text == "":
		return "", nil
	case strings.HasPrefix(text, auth.HashPrefix):
		return text, auth.CheckHash(text)
	}
	return s.gw.auth.HashPassword(ctx, text)
}

// shownText is a statement's text as others may see it, in lists and logs: without
// passwords.
func shownText(text string, b sql.Bound) string {
	switch b := b.(type) {
	case *sql.CreateUser:
		if b.Password != "" {
			return fmt.Sprintf("CREATE USER %s PASSWORD %s", quotedName("", b.Name), b.Password)
		}
	case *sql.AlterUser:
		if b.Password != nil {
			name := "CURRENT_USER"
			if b.Name != "" {
				name = quotedName("", b.Name)
			}
			return fmt.Sprintf("ALTER USER %s PASSWORD %s", name, b.Password)
		}
	}
	return text
}

// withoutPassword keeps a password from being shown by the error of a statement
// that cannot be parsed, whose message repeats part of it.
func withoutPassword(text string, err error) error {
	e, ok := err.(*sqlstate.Error)
	upper := strings.ToUpper(text)
	if !ok || !strings.Contains(upper, "PASSWORD") || !(strings.Contains(upper, "USER") || strings.Contains(upper, "ROLE")) {
		return err
	}
	return sqlstate.New(e.Code, "syntax error in a statement that may hold a password").At(e.Position)
}
