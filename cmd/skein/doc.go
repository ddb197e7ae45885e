// Command skein is Skein's one binary: servers (dev, gateway, worker) and
// Flight SQL clients (sql, load).
//
// This package owns the command line; what the commands do lives in the
// packages below it. It stands at the top of the import order.
package main
