package main

import (
	"fmt"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"skein/catalog"
	"skein/cmd/skein/internal/app"
	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/config"
	"skein/consensus"
	"skein/gateway/auth"
)

func newUser() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Look after the users of a cluster",
		Long: "Makes, changes and lists users, as CREATE USER, ALTER USER, DROP USER and the table skein.users do, by way of a\n" +
			"gateway. With --worker the worker at that address is asked, as one of the cluster's own tools: that is how the\n" +
			"first user is made, and a password replaced that everybody has forgotten. Passwords are hashed before they are sent.",
	}
	cmd.AddCommand(newUserAdd(), newUserPassword(), newUserDrop(),
		printing("list", "List the users", "SELECT user_name, superuser, has_password FROM skein.users ORDER BY user_name"))
	return cmd
}

// userTarget is where commands about users are sent: a gateway, or a worker.
type userTarget struct{ addr, worker string }

func (u *userTarget) flags(cmd *cobra.Command) {
	addAddr(cmd, &u.addr)
	cmd.Flags().StringVar(&u.worker, "worker", "", "Flight address of a worker to ask instead of a gateway")
	config.SecretFlag(cmd.Flags())
	config.NodeTLSFlags(cmd.Flags())
}

// run sends the statement to the gateway, or the request to the worker.
func (u *userTarget) run(cmd *cobra.Command, statement, command string, request any) error {
	if u.worker == "" {
		return withServer(cmd, u.addr, func(c *client.Client) error {
			_, err := c.Exec(cmd.Context(), statement)
			return err
		})
	}
	tools, err := config.LoadNodeTools(cmd.Flags(), os.Environ())
	if err != nil {
		return err
	}
	settings := config.Process{LogLevel: config.ToolLogLevel, LogFormat: config.DefaultLogFormat}
	return app.ChangeUsers(cmd.Context(), tools, u.worker, command, request, settings.NewLogger(os.Stderr))
}

// newHash is the hash of a new password of a user.
func newHash(file, user string) (string, error) {
	password, err := readNewPassword(file, user)
	if err != nil {
		return "", err
	}
	return auth.Hash(password)
}

func newUserAdd() *cobra.Command {
	var target userTarget
	var file string
	var superuser bool
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Make a user", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hash, err := newHash(file, args[0])
			if err != nil {
				return err
			}
			statement := fmt.Sprintf("CREATE USER %s PASSWORD %s", catalog.QuoteIdent(args[0]), quoted(hash))
			if superuser {
				statement += " SUPERUSER"
			}
			return target.run(cmd, statement, consensus.MetaPutUser, consensus.PutUser{
				RequestID: uuid.NewString(), Name: args[0], Create: true, Superuser: &superuser, PasswordHash: &hash,
			})
		},
	}
	target.flags(cmd)
	cmd.Flags().BoolVar(&superuser, "superuser", false, "one who administers the cluster, as the first user must")
	cmd.Flags().StringVar(&file, "new-password-file", "", "file with the password, which may also be in "+newPasswordVariable+", or is asked for")
	return cmd
}

func newUserPassword() *cobra.Command {
	var target userTarget
	var file string
	cmd := &cobra.Command{
		Use: "password NAME", Short: "Give a user another password", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hash, err := newHash(file, args[0])
			if err != nil {
				return err
			}
			return target.run(cmd, fmt.Sprintf("ALTER USER %s PASSWORD %s", catalog.QuoteIdent(args[0]), quoted(hash)),
				consensus.MetaPutUser, consensus.PutUser{RequestID: uuid.NewString(), Name: args[0], PasswordHash: &hash})
		},
	}
	target.flags(cmd)
	cmd.Flags().StringVar(&file, "new-password-file", "", "file with the password, which may also be in "+newPasswordVariable+", or is asked for")
	return cmd
}

func newUserDrop() *cobra.Command {
	var target userTarget
	cmd := &cobra.Command{
		Use: "drop NAME", Short: "Remove a user", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return target.run(cmd, "DROP USER "+catalog.QuoteIdent(args[0]), consensus.MetaDropUser,
				consensus.DropUser{RequestID: uuid.NewString(), Name: args[0]})
		},
	}
	target.flags(cmd)
	return cmd
}
