package wire

import (
	"io"
	"net"
	"testing"
)

func TestSurvive(t *testing.T) {
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer Survive(near)
		panic("a bug")
	}()
	<-done
	if _, err := far.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // the pipe's own
		t.Errorf("%v", err)
	}
	func() {
		defer Survive(far) // which nothing happens to
	}()
}
