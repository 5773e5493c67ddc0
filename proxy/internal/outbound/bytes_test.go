package outbound

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/header"
)

// Bytes between two plain sockets are moved by the kernel, however many of our
// connections only look on.
func TestPlainBytesAreSpliced(t *testing.T) {
	r := start(t)
	const db = "db.shop.svc.cluster.local:5432"
	at := acceptEach(t, func(c net.Conn) {
		_, _ = io.Copy(c, c)
	})
	r.controls.set(func() { r.controls.policies[db] = opaquePolicy(db) })
	r.controls.service(db, plain(at))
	for name, open := range map[string]func() net.Conn{
		"an opaque port":             func() net.Conn { conn, br := r.connect(db); return buffered(conn, br) },
		"what was looked at in vain": func() net.Conn { conn, br := r.redirected(at); return buffered(conn, br) },
		"a policy for an address":    func() net.Conn { return r.redirectedTo(t, db) },
	} {
		t.Run(name, func(t *testing.T) {
			conn := open()
			for range 2 {
				_, _ = io.WriteString(conn, "no request at all\n")
				got := make([]byte, len("no request at all\n"))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != "no request at all\n" {
					t.Fatalf("got %q, %v", got, err)
				}
			}
			eventually(t, "both ways are spliced", func() bool { return inside("wire.splice(") == 2 })
			_ = conn.Close()
			eventually(t, "they have ended", func() bool { return inside("wire.splice(") == 0 })
		})
	}
}

// redirectedTo is a connection to an address whose policy is the authority's.
func (r *rig) redirectedTo(t *testing.T, authority string) net.Conn {
	t.Helper()
	to := netip.MustParseAddrPort("127.0.0.9:5432")
	r.controls.set(func() { r.controls.policies[to.String()] = opaquePolicy(authority) })
	conn, br := r.redirected(to)
	return buffered(conn, br)
}

// inside counts goroutines that are in a function.
func inside(function string) int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), function)
}

// records notes the lengths of the TLS records that a connection is read of.
type records struct {
	net.Conn
	mu      sync.Mutex
	left    int // of the record
	head    []byte
	lengths []int
}

func (r *records) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	for b := p[:n]; len(b) > 0; {
		if r.left > 0 {
			m := min(r.left, len(b))
			r.left, b = r.left-m, b[m:]
			continue
		}
		m := min(5-len(r.head), len(b))
		r.head, b = append(r.head, b[:m]...), b[m:]
		if len(r.head) == 5 {
			r.left = int(binary.BigEndian.Uint16(r.head[3:]))
			if r.head[0] == 23 { // application data, and what is hidden among it
				r.lengths = append(r.lengths, r.left)
			}
			r.head = r.head[:0]
		}
	}
	return n, err
}

// Bytes over mutual TLS go out in records as large as there can be.
func TestBytesFillTheirRecords(t *testing.T) {
	r := start(t)
	const db, size = "db.shop.svc.cluster.local:5432", 4 << 20
	lis := listenLoopback(t)
	t.Cleanup(func() { _ = lis.Close() })
	done := make(chan []int, 1)
	cfg := peerTLS(t, r.ca, "db.shop")
	go func() {
		raw, err := lis.Accept()
		if err != nil {
			return
		}
		defer func() { _ = raw.Close() }()
		seen := &records{Conn: raw}
		c := tls.Server(seen, cfg)
		if _, err := header.Read(c); err != nil {
			return
		}
		n, _ := io.Copy(io.Discard, c)
		if n != size {
			t.Errorf("%d bytes of %d", n, size)
		}
		done <- seen.lengths
	}()
	r.controls.set(func() { r.controls.policies[db] = opaquePolicy(db) })
	r.controls.service(db, meshed(netip.AddrPortFrom(addrPort(lis).Addr(), 5432), "db.shop", addrPort(lis).Port()))
	conn, _ := r.connect(db)
	if _, err := conn.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	const whole = 16<<10 + 17 // with its type and tag
	full, all := 0, <-done
	for _, n := range all {
		if n == whole {
			full++
		}
		if n > whole {
			t.Errorf("a record of %d bytes", n)
		}
	}
	// The rest are what came in pieces, and the handshake's.
	if full < size/(16<<10)*3/4 {
		t.Errorf("%d of %d records are full", full, len(all))
	}
}
