package wire

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Delivered waits for a peer that reads, and for one that does not as long as it may.
func TestDelivered(t *testing.T) {
	const size = 300 << 10
	for _, tt := range []struct {
		name string
		then func(near net.Conn)
		all  bool
	}{
		{"it reads", func(near net.Conn) { _, _ = io.CopyN(io.Discard, near, size) }, true},
		{"it does not", func(net.Conn) {}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near, far := pair(t)
			_ = near.(*net.TCPConn).SetReadBuffer(32 << 10)
			_ = far.(*net.TCPConn).SetWriteBuffer(1 << 20)
			if _, err := far.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if underway(far) == 0 {
				t.Fatal("all of it is there without having been read")
			}
			go tt.then(near)
			Delivered(far, 500*time.Millisecond)
			if left := underway(far); (left == 0) != tt.all {
				t.Errorf("%d bytes are under way", left)
			}
			_ = far.Close()
			Delivered(far, time.Hour) // at once: there is no way for them
		})
	}
	synctest.Test(t, func(t *testing.T) { // it cannot be asked
		near, far := net.Pipe()
		began := time.Now()
		Delivered(far, time.Hour)
		if time.Since(began) > 0 {
			t.Error("it was waited for")
		}
		_, _ = near.Close(), far.Close()
	})
}
