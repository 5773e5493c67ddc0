//go:build unix

package dir

import (
	"os"
	"syscall"
)

// fileID tells a file that was replaced from one that was not.
type fileID struct{ dev, ino uint64 }

func idOf(info os.FileInfo) fileID {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return fileID{uint64(st.Dev), st.Ino} //nolint:unconvert // Dev is an int32 on some systems
	}
	return fileID{}
}
