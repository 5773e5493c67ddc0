package rpc

import (
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc/test/bufconn"
)

// TestBoundClosesWhatIsTooMany keeps a listener at two connections, over TCP
// and over a connection in memory.
func TestBoundClosesWhatIsTooMany(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mem := bufconn.Listen(1024)
	kinds := map[string]struct {
		lis  net.Listener
		dial func() (net.Conn, error)
	}{
		"tcp":    {tcp, func() (net.Conn, error) { return net.Dial("tcp", tcp.Addr().String()) }},
		"memory": {mem, mem.Dial},
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			lis := &bounded{Listener: k.lis, most: 2}
			accepted := make(chan net.Conn, 10)
			go func() {
				for {
					c, err := lis.Accept()
					if err != nil {
						close(accepted)
						return
					}
					accepted <- c
				}
			}()
			connect := func() net.Conn {
				c, err := k.dial()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			connect()
			first := <-accepted
			connect()
			<-accepted
			if _, err := connect().Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("Read() on the third connection = %v, want it closed", err)
			}
			// A place that is given back twice is still one place.
			_ = first.Close()
			_ = first.Close()
			connect()
			<-accepted
			if got := lis.open.Load(); got != 2 {
				t.Errorf("%d connections are counted, want 2", got)
			}
			if err := k.lis.Close(); err != nil {
				t.Error(err)
			}
			if _, more := <-accepted; more {
				t.Error("a connection came out of a closed listener")
			}
		})
	}
}
