//go:build !unix

package exec

import (
	"errors"
	"os"
)

func mapMemory(*os.File, int) ([]byte, error) {
	return nil, errors.New("files cannot be mapped into memory on this platform")
}

func unmapMemory([]byte) {}
