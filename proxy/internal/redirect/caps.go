package redirect

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RaiseNetAdmin makes the capability NET_ADMIN effective where it is merely
// permitted: that is what a process gets that runs as an ordinary user from a
// binary with a file capability. The file's "effective" bit would do the same,
// but with it the kernel refuses to run the binary at all where the capability
// is not granted, and the same binary is the validator, which needs none.
//
// Without the capability it changes nothing: the kernel's refusal comes later,
// with an explanation.
func RaiseNetAdmin() {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return
	}
	const bit = 1 << unix.CAP_NET_ADMIN
	if data[0].Permitted&bit == 0 || data[0].Effective&bit != 0 {
		return
	}
	data[0].Effective |= bit
	header.Pid = 0                                                     // Capget fills nothing in, but each thread must set its own
	head, content := unsafe.Pointer(&header), unsafe.Pointer(&data[0]) //nolint:gosec // capset takes two structs
	// Every thread, since Go runs a goroutine on any of them. A build with cgo
	// refuses this; ours has none.
	_, _, _ = syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(head), uintptr(content), 0)
}
