package outbound

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// crowd is what a process of clients does: it opens connections, sends a request
// on each, says so, and lets them be until its input ends.
type crowd struct {
	Addr       string
	Authority  string // of a plain request to a proxy
	Cert, Key  string // base64 of DER; with them the connections are a mesh peer's
	Name       string // of the server
	Port       uint16 // of the application behind it
	Conns      int
	BodyLength int
	Burst      int // bytes that each sends, all at once, when it is told to: the connections are of HTTP/2 then
}

const crowdVariable = "WEFT_COST_CROWD"

func TestMain(m *testing.M) {
	if text := os.Getenv(crowdVariable); text != "" {
		var c crowd
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = c.gather()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Applications of net/http linger for half a second over what they refused to read.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func (c crowd) gather() error {
	if c.Burst > 0 {
		return c.surge()
	}
	for range c.Conns {
		conn, err := c.dial()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		target := "/"
		if c.Cert == "" {
			target = "http://" + c.Authority + "/"
		}
		req := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", target, c.Authority, c.BodyLength)
		if _, err := conn.Write(append(req, bytes.Repeat([]byte("x"), c.BodyLength)...)); err != nil {
			return err
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("answered %s, %w", res.Status, err)
		}
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// surge has peers of HTTP/2 send a little, and much when a line says so.
func (c crowd) surge() error {
	var all []*peer2
	for range c.Conns {
		conn, err := c.dial()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		p, err := peerOn(conn)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	for in, size := bufio.NewReader(os.Stdin), c.BodyLength; ; size = c.Burst {
		if err := together(all, size); err != nil {
			return err
		}
		fmt.Println("ready")
		if _, err := in.ReadString('\n'); err != nil {
			return nil // the end
		}
	}
}

func (c crowd) dial() (net.Conn, error) {
	conn, err := net.Dial("tcp", c.Addr)
	if err != nil || c.Cert == "" {
		return conn, err
	}
	cert, err := base64.StdEncoding.DecodeString(c.Cert)
	if err != nil {
		return nil, err
	}
	der, err := base64.StdEncoding.DecodeString(c.Key)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: c.Name, NextProtos: []string{header.ALPN}, DynamicRecordSizingDisabled: true,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}},
		InsecureSkipVerify: true,
	})
	session := header.HTTP1
	if c.Burst > 0 {
		session = header.HTTP2
	}
	return secure, header.Write(secure, header.Header{Port: c.Port, Session: session})
}

// start runs the crowd in another process, so that this one's memory is the
// proxy's, and returns how it ends.
func (c crowd) start(t *testing.T) func() {
	t.Helper()
	_, end := c.begin(t)
	return end
}

// begin is start, and returns how the crowd is told to go on, too.
func (c crowd) begin(t *testing.T) (next, end func()) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), crowdVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	ready := func() {
		t.Helper()
		if line, err := said.ReadString('\n'); err != nil {
			t.Fatalf("the clients said %q, %v", line, err)
		}
	}
	ready()
	next = func() {
		t.Helper()
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		ready()
	}
	return next, func() { _ = in.Close(); _ = cmd.Wait() }
}

// testIdle measures what a connection holds that has been used and is idle.
func testIdle(t *testing.T) {
	for _, tt := range []struct {
		name   string
		meshed bool
		body   int
		budget float64 // in KiB
	}{
		// Half of it is the smallest stack that there is.
		{"plain", false, 100, 4},
		{"plain after a large body", false, 100_000, 4},
		{"mTLS after small messages", true, 100, 24},
		{"mTLS after a full record", true, 16_000, 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPair(t, "all-authenticated")
			app := serveHTTP(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			p.controls.service(web, plain(app.addr))
			c := crowd{Addr: p.addr, Authority: "web.shop.svc.cluster.local", BodyLength: tt.body, Conns: 1000}
			if tt.meshed {
				c.mesh(t, p, app.addr.Port())
			}
			c.start(t)() // the way is known, pools are filled
			base := quieter(t, 0)
			least := resting
			if tt.meshed {
				least = 0 // resting is not what the budgets are for
			}
			before := settled(least / 2)
			end := c.start(t)
			per := (settled(least) - before) / float64(c.Conns) / 1024
			end()
			quieter(t, base+c.Conns/2)
			t.Logf("%.1f KiB a connection", per)
			if per > tt.budget {
				t.Errorf("an idle connection holds %.1f KiB, want %.0f at most", per, tt.budget)
			}
		})
	}
}

// mesh makes the crowd mesh peers of the pair's inbound side.
func (c *crowd) mesh(t *testing.T, p *pair, app uint16) {
	t.Helper()
	own, err := p.authorities.Local(t, clientID).ClientTLS(serverID, serverID).GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalECPrivateKey(own.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	c.Addr, c.Port, c.Name = p.inbound.Addr().String(), app, serverID
	c.Cert, c.Key = base64.StdEncoding.EncodeToString(own.Certificate[0]), base64.StdEncoding.EncodeToString(key)
}

// quieter waits until there are no more goroutines than that, 0 being as few as
// there are a moment later, and returns how many there are.
func quieter(t *testing.T, most int) int {
	t.Helper()
	if most == 0 {
		for now := -1; now != runtime.NumGoroutine(); <-time.After(200 * time.Millisecond) {
			now = runtime.NumGoroutine()
		}
		return runtime.NumGoroutine()
	}
	for runtime.NumGoroutine() > most {
		<-time.After(10 * time.Millisecond)
	}
	return runtime.NumGoroutine()
}

// resting is longer than idle connections take to rest on stacks that are small again,
// which is four times what the door waits, 8 seconds.
const resting = 9 * time.Second

// settled is what the heap and the stacks hold in bytes after least, and when they have
// held less no more for a while: connections have ended or rest, and stacks have shrunk.
func settled(least time.Duration) float64 {
	const calm = 300 * time.Millisecond
	low, since := 0.0, time.Now()
	for began := time.Now(); time.Since(began) < least || time.Since(since) < calm && time.Since(began) < time.Minute; <-time.After(50 * time.Millisecond) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := float64(m.HeapAlloc + m.StackInuse)
		if low == 0 || now < low*0.995 {
			low, since = now, time.Now()
		}
	}
	return low
}

// testBurst has many peers send much at once, and sees the memory go back to the
// system while their connections stay (complaint F18).
func testBurst(t *testing.T) {
	const peers, size = 300, 1 << 20
	discard := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	t.Run("plain", func(t *testing.T) {
		p := startPair(t, "all-authenticated")
		p.controls.service(web, plain(serveHTTP(t, discard).addr))
		var all []*peer2
		for range peers {
			all = append(all, newPeer2(t, p.addr))
		}
		each(t, all, 100)
		burst(t, 0, func() { each(t, all, size) })
	})
	t.Run("mTLS", func(t *testing.T) {
		p := startPair(t, "all-authenticated")
		c := crowd{Authority: "web.shop.svc.cluster.local", Conns: peers, BodyLength: 100, Burst: size}
		c.mesh(t, p, serveHTTP(t, discard).addr.Port())
		next, end := c.begin(t)
		defer end()
		burst(t, peers*longest, next)
	})
}

// longest is what crypto/tls keeps of a connection that has carried a long record, in
// bytes: what the budgets of testIdle differ by.
const longest = 16 << 10

// burst sees that surge leaves no more behind than a fifth of what there was, and what
// its connections keep as long as they live, in bytes.
func burst(t *testing.T, kept float64, surge func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ebbing := make(chan struct{})
	go func() { defer close(ebbing); _ = wire.Ebb(ctx, func() {}) }()
	defer func() { cancel(); <-ebbing }()
	settled(0)
	debug.FreeOSMemory() // as Ebb has done by then where a proxy has run for a while
	before := held()
	budget := 1.2*before + kept
	surge()
	most := held()
	began := time.Now()
	for held() > budget && time.Since(began) < 30*time.Second {
		<-time.After(200 * time.Millisecond)
	}
	after := held()
	t.Logf("%.1f MB before, %.1f in the burst, %.1f after %v", before/1e6, most/1e6, after/1e6, time.Since(began).Round(time.Second))
	if after > budget {
		t.Errorf("the burst has left %.1f MB of %.1f, want %.1f at most", after/1e6, most/1e6, budget/1e6)
	}
}

// held is the memory of the system that the runtime holds, in bytes.
func held() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.Sys - m.HeapReleased)
}

// peer2 is a client of HTTP/2 that holds little itself.
type peer2 struct {
	c      net.Conn
	in     frames
	stream uint32
	conn   int64 // its windows
	window int64
}

func newPeer2(t *testing.T, addr string) *peer2 {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p, err := peerOn(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func peerOn(c net.Conn) (*peer2, error) {
	_, err := c.Write(frame.AppendSettings([]byte(frame.Preface)))
	return &peer2{c: c, in: frames{c: c, buf: make([]byte, 4<<10)}, stream: 1, conn: frame.FirstWindow}, err
}

// each has all peers send a body at once.
func each(t *testing.T, all []*peer2, size int) {
	t.Helper()
	if err := together(all, size); err != nil {
		t.Fatal(err)
	}
}

func together(all []*peer2, size int) error {
	done := make(chan error, len(all))
	for _, p := range all {
		go func() { done <- p.send(size) }()
	}
	var err error
	for range all {
		err = errors.Join(err, <-done)
	}
	return err
}

// send posts a body and waits for the answer.
func (p *peer2) send(size int) error {
	p.window = frame.FirstWindow
	b := block(":method", "POST", ":scheme", "http", ":path", "/", ":authority", "web.shop.svc.cluster.local")
	if p.stream == 1 {
		b = first(":method", "POST", ":scheme", "http", ":path", "/", ":authority", "web.shop.svc.cluster.local")
	}
	if _, err := p.c.Write(appendHeaders(nil, p.stream, b, 0)); err != nil {
		return err
	}
	for left := size; ; {
		n := int(min(int64(left), p.conn, p.window, 16<<10))
		if left > 0 && n > 0 {
			flags := frame.Flag(0)
			if left == n {
				flags = frame.EndStream
			}
			if _, err := p.c.Write(appendData(nil, p.stream, zeros[:n], flags)); err != nil {
				return err
			}
			left -= n
			p.conn -= int64(n)
			p.window -= int64(n)
			continue
		}
		h, body, err := p.in.next()
		if err != nil {
			return err
		}
		switch {
		case h.Type == frame.Settings && !h.Has(frame.Ack):
			err = frame.SettingsOf(h, body, func(s frame.Setting, v uint32) error {
				if s == frame.FirstSize {
					p.window += int64(v) - frame.FirstWindow
				}
				return nil
			})
		case h.Type == frame.Window:
			var n uint32
			n, err = frame.WindowOf(h, body)
			if h.Stream == 0 {
				p.conn += int64(n)
			} else {
				p.window += int64(n)
			}
		case h.Type == frame.Reset, h.Type == frame.GoAway:
			err = fmt.Errorf("got %v of %d bytes", h, left)
		case h.Stream == p.stream && h.Has(frame.EndStream):
			p.stream += 2
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var zeros = make([]byte, 16<<10)
