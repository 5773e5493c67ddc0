package rpc

import (
	"log/slog"
	"net"

	"github.com/weftmesh/weft/services/kit/obs"
)

const (
	// sendBuffer bounds what the kernel holds for a client that does not read;
	// by itself it would grow to 4 MB a connection (BUS.md §5.4).
	sendBuffer = 128 << 10
	// userTimeout is how long sent bytes may stay unacknowledged before the
	// kernel gives the connection up: the keepalive's time and timeout.
	userTimeout = keepaliveTime + keepaliveTimeout
)

// Bound is lis with a bounded send buffer and a TCP user timeout on every
// connection it accepts. Serve does this itself.
func Bound(lis net.Listener) net.Listener { return &bounded{Listener: lis} }

type bounded struct{ net.Listener }

// Accept returns the next connection. One whose options can't be set is
// served all the same: it may already be gone.
func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // grpc looks at what Accept returns
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn, nil
	}
	if err := tcp.SetWriteBuffer(sendBuffer); err != nil {
		slog.Debug("bounding a connection", obs.Error(err))
	}
	if err := setUserTimeout(tcp, userTimeout); err != nil {
		slog.Debug("bounding a connection", obs.Error(err))
	}
	return conn, nil
}
