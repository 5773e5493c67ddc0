package rpc

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/weftmesh/weft/services/kit/obs"
)

const (
	// sendBuffer bounds what the kernel holds for a client that does not read;
	// by itself it would grow to 4 MB a connection (BUS.md §5.4).
	sendBuffer = 128 << 10
	// userTimeout is how long sent bytes may stay unacknowledged before the
	// kernel gives the connection up: the keepalive's time and timeout.
	userTimeout = keepaliveTime + keepaliveTimeout
	// maxConns is twice what a front-end is meant to carry (BUS.md §5.1 measured
	// 5,000). An idle connection costs some 20 KiB, so this is 400 MB at worst.
	maxConns = 20_000
)

// Bound is lis with a bounded number of connections, and on each a bounded
// send buffer and a TCP user timeout. What comes when there are too many is
// closed at once, so that the client tries another replica instead of waiting.
// Serve does this itself.
func Bound(lis net.Listener) net.Listener { return &bounded{Listener: lis, most: maxConns} }

type bounded struct {
	net.Listener
	most int64
	open atomic.Int64
	full atomic.Bool // said once for each time that it fills up
}

// Accept returns the next connection. One whose options can't be set is
// served all the same: it may already be gone.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err // as it is: grpc looks at what Accept returns
		}
		if b.open.Load() >= b.most {
			_ = conn.Close() // it was not wanted
			if !b.full.Swap(true) {
				slog.Warn("too many connections: closing new ones", obs.Addr(b.Addr().String()), obs.Count(int(b.most)))
			}
			continue
		}
		b.full.Store(false)
		b.open.Add(1)
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return &counted{Conn: conn, closed: b.closed()}, nil
		}
		if err := tcp.SetWriteBuffer(sendBuffer); err != nil {
			slog.Debug("bounding a connection", obs.Error(err))
		}
		if err := setUserTimeout(tcp, userTimeout); err != nil {
			slog.Debug("bounding a connection", obs.Error(err))
		}
		return &countedTCP{TCPConn: tcp, closed: b.closed()}, nil
	}
}

// closed gives back a connection's place, once.
func (b *bounded) closed() func() {
	return sync.OnceFunc(func() { b.open.Add(-1) })
}

// counted and countedTCP give their place back when they are closed. The TCP
// kind keeps the methods of a TCP connection.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

type countedTCP struct {
	*net.TCPConn
	closed func()
}

func (c *countedTCP) Close() error {
	c.closed()
	return c.TCPConn.Close()
}
