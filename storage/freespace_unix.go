//go:build linux || darwin || freebsd

package storage

import "syscall"

// freeBytes is what an ordinary process may still write on dir's volume.
func freeBytes(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}

// VolumeBytes is the size of dir's volume, 0 where that is unknown.
func VolumeBytes(dir string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Blocks) * int64(st.Bsize)
}
