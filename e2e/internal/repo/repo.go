// Package repo finds this repository, whose sources the tests build and whose files they read.
package repo

import (
	"fmt"
	"os"
	"path/filepath"
)

// Root is the repository's root: the nearest directory above with a go.work.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.work")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("finding the repository: no go.work above %s", dir)
		}
	}
}
