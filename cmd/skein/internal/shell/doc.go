// Package shell is `skein sql`: it reads SQL statements and commands that begin
// with a backslash, from a terminal or a script, runs the statements on a
// Flight SQL server and prints what they give.
//
// It knows the server through package client only. Descriptions of tables come
// from the server's system tables, so they need a Skein; everything else works
// with any Flight SQL server.
package shell
