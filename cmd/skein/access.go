package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skein/cmd/skein/internal/client"
	"skein/cmd/skein/internal/config"
)

// Variables that stand for flags of clients. There is no flag for a password:
// other users of the machine could see it.
const (
	addrVariable        = "SKEIN_ADDR"
	userVariable        = "SKEIN_USER"
	passwordVariable    = "SKEIN_PASSWORD"
	newPasswordVariable = "SKEIN_NEW_PASSWORD"
)

// addAddr adds the flags that say which server a command connects to, and as whom.
func addAddr(cmd *cobra.Command, addr *string) {
	initial := config.DefaultFlight
	if v := os.Getenv(addrVariable); v != "" {
		initial = v
	}
	f := cmd.Flags()
	f.StringVar(addr, "addr", initial, "server to connect to: host:port, or grpc+tls://host:port with TLS; "+addrVariable+" sets the default")
	f.String("tls-ca", "", "PEM file with the CA of the server's certificate, empty for the system's; turns on TLS")
	f.Bool("insecure", false, "take any certificate, and send a password without TLS")
	f.String("user", os.Getenv(userVariable), "user to log in as; "+userVariable+" sets the default")
	f.String("password-file", "", "file with the password, which may also be in "+passwordVariable+", or is asked for")
}

// dialServer connects to the server of the flags that addAddr has added.
func dialServer(cmd *cobra.Command, addr string) (*client.Client, error) {
	access, err := accessOf(cmd)
	if err != nil {
		return nil, err
	}
	return client.DialAs(addr, access)
}

func accessOf(cmd *cobra.Command) (client.Access, error) {
	f := cmd.Flags()
	var a client.Access
	var file string
	var errs [4]error
	a.CA, errs[0] = f.GetString("tls-ca")
	a.Insecure, errs[1] = f.GetBool("insecure")
	a.User, errs[2] = f.GetString("user")
	file, errs[3] = f.GetString("password-file")
	if err := errors.Join(errs[:]...); err != nil || a.User == "" {
		return a, err
	}
	var err error
	a.Password, err = readPassword(file, passwordVariable, fmt.Sprintf("Password of %s: ", a.User), "--password-file")
	return a, err
}

// readPassword takes a password from a file, a variable or the terminal.
func readPassword(file, variable, prompt, flag string) (string, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
	}
	if v := os.Getenv(variable); v != "" {
		return v, nil
	}
	if !isTerminal(os.Stdin) {
		return "", fmt.Errorf("give the password with %s or in %s, or on a terminal", flag, variable)
	}
	return askPassword(prompt)
}

func askPassword(prompt string) (string, error) {
	if _, err := fmt.Fprint(os.Stderr, prompt); err != nil {
		return "", err
	}
	text, err := term.ReadPassword(int(os.Stdin.Fd()))
	if _, perr := fmt.Fprintln(os.Stderr); err == nil {
		err = perr
	}
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	return string(text), nil
}

// readNewPassword is readPassword for one that is to be set, asked for twice.
func readNewPassword(file, user string) (string, error) {
	prompt := fmt.Sprintf("New password of %s: ", user)
	password, err := readPassword(file, newPasswordVariable, prompt, "--new-password-file")
	if err != nil {
		return "", err
	}
	if file == "" && os.Getenv(newPasswordVariable) == "" {
		again, err := askPassword("The same again: ")
		if err != nil {
			return "", err
		}
		if again != password {
			return "", errors.New("the two are not the same")
		}
	}
	return password, nil
}
