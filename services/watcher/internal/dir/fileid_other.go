//go:build !unix

package dir

import "os"

type fileID struct{}

func idOf(os.FileInfo) fileID { return fileID{} }
