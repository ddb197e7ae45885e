package bind

import (
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"

	"skein/sqlstate"
)

// Password is one as a statement spells it. It prints as stars, so that it gets
// into no log by accident.
type Password string

// String hides the password.
func (Password) String() string { return "***" }

// GoString hides the password.
func (Password) GoString() string { return "***" }

// CreateUser makes a user.
type CreateUser struct {
	Name      string
	Password  Password // "" is none: nobody can log in
	Superuser bool
}

// AlterUser changes a user; nil fields stay as they are.
type AlterUser struct {
	Name      string    // "" is the one who asks
	Password  *Password // of "" is none
	Superuser *bool
}

// DropUser removes users. Without IfExists all must exist before any goes.
type DropUser struct {
	Names    []string
	IfExists bool
}

func (*CreateUser) statement() {}
func (*AlterUser) statement()  {}
func (*DropUser) statement()   {}

// userOptions are the options of CREATE USER and ALTER USER.
type userOptions struct {
	password  *Password
	superuser *bool
}

func (b *binder) createUser(stmt *pgquery.CreateRoleStmt) (*CreateUser, error) {
	if stmt.StmtType != pgquery.RoleStmtType_ROLESTMT_USER {
		return nil, b.unsupported(-1, "CREATE %s", strings.TrimPrefix(stmt.StmtType.String(), "ROLESTMT_")).WithHint("Use CREATE USER.")
	}
	if err := b.onlyFields(stmt, "stmt_type", "role", "options"); err != nil {
		return nil, err
	}
	options, err := b.userOptions(stmt.Options)
	if err != nil {
		return nil, err
	}
	out := &CreateUser{Name: stmt.Role, Superuser: options.superuser != nil && *options.superuser}
	if options.password != nil {
		out.Password = *options.password
	}
	return out, nil
}

func (b *binder) alterUser(stmt *pgquery.AlterRoleStmt) (*AlterUser, error) {
	if err := b.onlyFields(stmt, "role", "options", "action"); err != nil {
		return nil, err
	}
	if stmt.Action != 1 { // adding members to a group says -1 or has them as an option
		return nil, b.unsupported(-1, "ALTER GROUP")
	}
	name, err := b.userName(stmt.Role)
	if err != nil {
		return nil, err
	}
	options, err := b.userOptions(stmt.Options)
	if err != nil {
		return nil, err
	}
	return &AlterUser{Name: name, Password: options.password, Superuser: options.superuser}, nil
}

func (b *binder) dropUser(stmt *pgquery.DropRoleStmt) (*DropUser, error) {
	if err := b.onlyFields(stmt, "roles", "missing_ok"); err != nil {
		return nil, err
	}
	out := &DropUser{IfExists: stmt.MissingOk}
	for _, n := range stmt.Roles {
		role := n.GetRoleSpec()
		if role.GetRoletype() != pgquery.RoleSpecType_ROLESPEC_CSTRING {
			return nil, b.errorAt(sqlstate.InvalidParameter, role.GetLocation(), "cannot use a special user name in DROP USER")
		}
		out.Names = append(out.Names, role.Rolename)
	}
	return out, nil
}

// userName is the name of a user, "" for the one who asks.
func (b *binder) userName(role *pgquery.RoleSpec) (string, error) {
	switch role.GetRoletype() {
	case pgquery.RoleSpecType_ROLESPEC_CSTRING:
		return role.Rolename, nil
	case pgquery.RoleSpecType_ROLESPEC_CURRENT_USER, pgquery.RoleSpecType_ROLESPEC_SESSION_USER, pgquery.RoleSpecType_ROLESPEC_CURRENT_ROLE:
		return "", nil
	}
	return "", b.unsupported(role.GetLocation(), "this form of a user's name")
}

func (b *binder) userOptions(nodes []*pgquery.Node) (userOptions, error) {
	var out userOptions
	for _, n := range nodes {
		option := n.GetDefElem()
		var again bool
		switch option.GetDefname() {
		case "password":
			again = out.password != nil
			text := Password(option.Arg.GetString_().GetSval())
			if option.Arg != nil && text == "" {
				return out, b.errorAt(sqlstate.InvalidParameter, option.Location, "a password cannot be empty").
					WithHint("PASSWORD NULL is none.")
			}
			out.password = &text
		case "superuser":
			again = out.superuser != nil
			on := option.Arg.GetBoolean().GetBoolval()
			out.superuser = &on
		case "canlogin":
			if !option.Arg.GetBoolean().GetBoolval() {
				return out, b.unsupported(option.Location, "NOLOGIN").WithHint("PASSWORD NULL keeps a user from logging in.")
			}
		default:
			return out, b.unsupported(option.GetLocation(), "the user option %s", strings.ToUpper(option.GetDefname())).
				WithHint("There are PASSWORD, SUPERUSER, NOSUPERUSER and LOGIN.")
		}
		if again {
			return out, b.errorAt(sqlstate.SyntaxError, option.Location, "conflicting or redundant options")
		}
	}
	return out, nil
}
