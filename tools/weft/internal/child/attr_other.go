//go:build !linux

package child

import "syscall"

// Elsewhere a killed parent leaves its children; a stopped one does not.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
