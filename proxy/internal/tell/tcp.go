package tell

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/weftmesh/weft/proxy/internal/wire"
)

// TCP counts the connections of one set of labels: direction, peer ("src" is the
// side that connected to us, "dst" the one we connected to), target, TLS.
type TCP struct {
	m      *Metrics
	labels Labels

	opened *Counter
	open   *Gauge
	read   *Counter
	write  *Counter

	received, sent *Counter // by zone; nil for connections that have none
}

// TCP binds the tcp_ families to the labels. All connections with the same labels
// share what it returns.
func (m *Metrics) TCP(l Labels) *TCP {
	s := m.bind(TCPOpenTotal, l)
	if t := s.tcp.Load(); t != nil {
		return t
	}
	t := &TCP{
		m: m, labels: l,
		opened: &Counter{s}, open: m.Gauge(TCPOpen, l),
		read: m.Counter(TCPReadBytes, l), write: m.Counter(TCPWriteBytes, l),
	}
	if !s.spilled { // which is of many labels
		s.tcp.Store(t)
	}
	return t
}

// Cost also counts bytes by whether they leave the zone: locality is what
// discovery says of the peer, "local" or "remote".
func (t *TCP) Cost(locality string) *TCP {
	shared := *t
	t = &shared
	zone := "Unknown"
	switch locality {
	case "local":
		zone = "Local"
	case "remote":
		zone = "Remote"
	}
	l := Labels{{"zone_locality", zone}}
	t.received, t.sent = t.m.Counter(TransferCost, l.With("op", "Recv")), t.m.Counter(TransferCost, l.With("op", "Send"))
	return t
}

// Start counts a connection as open. The caller counts bytes with Read and Write
// and must call End once.
func (t *TCP) Start() {
	t.opened.Inc()
	t.open.Add(1)
}

// Read counts bytes read from the peer.
func (t *TCP) Read(n int) {
	if n > 0 {
		t.read.Add(uint64(n))
		if t.received != nil {
			t.received.Add(uint64(n))
		}
	}
}

// Write counts bytes written to the peer.
func (t *TCP) Write(n int) {
	if n > 0 {
		t.write.Add(uint64(n))
		if t.sent != nil {
			t.sent.Add(uint64(n))
		}
	}
}

// End counts the connection as closed; err is what ended it, nil for a clean end.
func (t *TCP) End(err error) {
	t.open.Add(-1)
	t.m.Counter(TCPCloseTotal, t.labels.With("errno", Errno(err))).Inc()
}

// Wrap starts a connection and counts its bytes; closing it ends it. The result
// can half-close if c can.
func (t *TCP) Wrap(c net.Conn) *Conn {
	t.Start()
	counted := &Conn{Conn: c, tell: t}
	counted.sock.Reset(c)
	return counted
}

// A Conn is a counted connection.
type Conn struct {
	net.Conn
	tell   *TCP
	sock   wire.Socket // c's, if it is one
	failed atomic.Pointer[error]
	closed atomic.Bool
}

func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tell.Read(n)
	c.note(err)
	return n, err
}

func (c *Conn) Write(p []byte) (int, error) {
	var n int
	var err error
	if c.sock.Open() {
		n, err = c.sock.Write(p)
	} else {
		n, err = c.Conn.Write(p)
	}
	c.tell.Write(n)
	c.note(err)
	return n, err
}

// Under is the connection below, for whoever reads past this one and tells Passed.
func (c *Conn) Under() net.Conn { return c.Conn }

// Passed counts what was read from the connection below.
func (c *Conn) Passed(n int, err error) {
	c.tell.Read(n)
	c.note(err)
}

// Sent counts what was written to the connection below.
func (c *Conn) Sent(n int, err error) {
	c.tell.Write(n)
	c.note(err)
}

// CloseWrite ends our side of the connection, where the connection below can.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection and counts its end, once.
func (c *Conn) Close() error {
	err := c.Conn.Close()
	if c.closed.CompareAndSwap(false, true) {
		var cause error
		if p := c.failed.Load(); p != nil {
			cause = *p
		}
		c.tell.End(cause)
	}
	return err
}

// note keeps the first failure of the peer; our own closing is none.
func (c *Conn) note(err error) {
	if err == nil || errors.Is(err, net.ErrClosed) || Errno(err) == "" {
		return
	}
	c.keep(err)
}

// keep is apart from note so that an error that is none costs no memory.
func (c *Conn) keep(err error) { c.failed.CompareAndSwap(nil, &err) }

// Errno is the errno label of tcp_close_total: a name such as ECONNRESET, or
// nothing if the end had no system error.
func Errno(err error) string {
	no, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return ""
	}
	if name, ok := errnos[no]; ok {
		return name
	}
	return "UNKNOWN"
}

var errnos = map[syscall.Errno]string{
	syscall.ECONNREFUSED:  "ECONNREFUSED",
	syscall.ECONNRESET:    "ECONNRESET",
	syscall.ECONNABORTED:  "ECONNABORTED",
	syscall.EPIPE:         "EPIPE",
	syscall.ETIMEDOUT:     "ETIMEDOUT",
	syscall.EHOSTUNREACH:  "EHOSTUNREACH",
	syscall.ENETUNREACH:   "ENETUNREACH",
	syscall.ENOTCONN:      "ENOTCONN",
	syscall.EADDRNOTAVAIL: "EADDRNOTAVAIL",
	syscall.EMFILE:        "EMFILE",
}
