package system

// usersTable has a row per user, by name.
var usersTable = define("users", fillUsers, number("user_id"), text("user_name"), flag("superuser"), flag("has_password"))

func fillUsers(s *State, r *rows) {
	for _, u := range s.Meta.Users {
		r.add(u.ID, u.Name, u.Superuser, u.PasswordHash != "")
	}
}
