// Package tpchdata makes the tables of TPC-H as Parquet files.
package tpchdata

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"skein/bench/tpch"
)

// generatorVersion pins the PyPI package tpchgen-cli, which writes the tables
// as Parquet with the types of the specification.
const generatorVersion = "4.0.0"

// Generate makes the tables of a scale factor below cache, unless they are
// there, and returns their directory.
func Generate(ctx context.Context, cache, scale string) (string, error) {
	dir := filepath.Join(cache, "sf"+scale)
	if complete(dir) {
		return dir, nil
	}
	generator, err := findGenerator(ctx, cache)
	if err != nil {
		return "", err
	}
	// Made aside and renamed, so that an interrupted run leaves no half tables.
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return "", err
	}
	if err := run(ctx, generator, "parquet", "--quiet", "-s", scale, "-o", partial); err != nil {
		return "", fmt.Errorf("generating TPC-H data: %w", err)
	}
	return dir, os.Rename(partial, dir)
}

func complete(dir string) bool {
	for _, table := range tpch.Tables {
		if _, err := os.Stat(File(dir, table)); err != nil {
			return false
		}
	}
	return true
}

// File is where a table of a directory is.
func File(dir, table string) string { return filepath.Join(dir, table+".parquet") }

func findGenerator(ctx context.Context, cache string) (string, error) {
	if path, err := exec.LookPath("tpchgen-cli"); err == nil {
		return path, nil
	}
	venv := filepath.Join(cache, "venv")
	generator := filepath.Join(venv, "bin", "tpchgen-cli")
	if _, err := os.Stat(generator); err == nil {
		return generator, nil
	}
	if err := run(ctx, "python3", "-m", "venv", venv); err != nil {
		return "", fmt.Errorf("making a Python environment for the generator: %w", err)
	}
	err := run(ctx, filepath.Join(venv, "bin", "pip"), "install", "--quiet", "tpchgen-cli=="+generatorVersion)
	if err != nil {
		return "", errors.Join(fmt.Errorf("installing tpchgen-cli: %w", err), os.RemoveAll(venv))
	}
	return generator, nil
}

func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
