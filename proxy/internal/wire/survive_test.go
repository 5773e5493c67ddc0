package wire

import (
	"errors"
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
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	func() {
		defer Survive(far) // which nothing happens to
	}()
}
