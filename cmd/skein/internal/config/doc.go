// Package config reads the settings of Skein's processes: a YAML file,
// SKEIN_* environment variables and command-line flags, later ones winning.
//
// It owns the names, defaults and validation of settings and may import
// nothing of Skein. It must never open a port, a file other than the
// configuration file, or a data directory.
package config
