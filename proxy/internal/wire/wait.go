package wire

import "golang.org/x/sys/unix"

// Wait waits until there is something to read or nothing ever will be, which Fill
// then finds. It looks before it borrows, and calls little: for a goroutine whose
// stack is to stay small. Where that cannot be it does not wait.
func (r *Reader) Wait() {
	if r.kind == socket && r.begun && r.at == r.end {
		_ = r.raw.Read(func(fd uintptr) bool {
			_, no := peekAt(fd, r.one[:])
			return no != unix.EAGAIN
		})
	}
}
