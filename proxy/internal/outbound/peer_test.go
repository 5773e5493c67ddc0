package outbound

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/origproto"
)

// server is an application without a proxy, HTTP/1 and HTTP/2 prior knowledge.
type server struct {
	addr netip.AddrPort
	http *http.Server
}

func serveHTTP(t *testing.T, h http.Handler) *server {
	t.Helper()
	return serveHTTPOn(t, listenLoopback(t), h)
}

func serveHTTPOn(t *testing.T, lis net.Listener, h http.Handler) *server {
	t.Helper()
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s := &server{addr: addrPort(lis), http: &http.Server{Handler: h, Protocols: p}}
	go func() { _ = s.http.Serve(lis) }()
	t.Cleanup(func() { _ = s.http.Close() })
	return s
}

// echo answers with what it was asked.
func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-From", name)
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("X-Host", r.Host)
		w.Header().Set("X-Uri", r.RequestURI)
		_, _ = fmt.Fprintf(w, "%s %s", name, body)
	})
}

// sidecar is a workload behind a proxy as linkerd2-proxy's inbound side is on
// port 4143: mTLS, transport header, then HTTP/2 with orig-proto, HTTP/1 or bytes.
type sidecar struct {
	addr    netip.AddrPort // of the proxy; the application's port is a number only
	headers chan header.Header
	clients chan string
	bytes   atomic.Int64 // application bytes that arrived decrypted
	conns   atomic.Int64
	lis     net.Listener

	mu   sync.Mutex
	open []net.Conn
}

func newSidecar(t *testing.T, ca *authorityCA, cert string, h http.Handler) *sidecar {
	t.Helper()
	lis := listenLoopback(t)
	s := &sidecar{addr: addrPort(lis), headers: make(chan header.Header, 1000), clients: make(chan string, 1000), lis: lis}
	cfg := peerTLS(t, ca, cert)
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.mu.Lock()
			s.open = append(s.open, c)
			s.mu.Unlock()
			go s.serve(tls.Server(c, cfg), h)
		}
	}()
	t.Cleanup(s.kill)
	return s
}

// peerTLS is the server side of a mesh peer's mutual TLS.
func peerTLS(t *testing.T, ca *authorityCA, name string) *tls.Config {
	t.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.issue(t, name)}, NextProtos: []string{header.ALPN},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool, SessionTicketsDisabled: true,
	}
}

// kill closes the listener and every connection, as a killed process does.
func (s *sidecar) kill() {
	_ = s.lis.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close()
	}
}

func (s *sidecar) serve(c *tls.Conn, h http.Handler) {
	defer func() { _ = c.Close() }()
	if c.Handshake() != nil {
		return
	}
	head, err := header.Read(c)
	if err != nil {
		return
	}
	s.headers <- head
	s.clients <- c.ConnectionState().PeerCertificates[0].DNSNames[0]
	switch head.Session {
	case header.HTTP2:
		(&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: s.downgrade(h)}) //nolint:staticcheck // the one way to serve a single connection
	case header.HTTP1:
		one := &oneListener{conn: c, done: make(chan struct{})}
		_ = (&http.Server{Handler: s.count(h), ConnState: func(_ net.Conn, st http.ConnState) {
			if st == http.StateClosed {
				one.stop()
			}
		}}).Serve(one)
	default:
		r := bufio.NewReader(c)
		for {
			line, err := r.ReadString('\n')
			s.bytes.Add(int64(len(line)))
			if err != nil {
				_ = c.CloseWrite()
				return
			}
			if _, err := io.WriteString(c, "echo "+line); err != nil {
				return
			}
		}
	}
}

func (s *sidecar) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.bytes.Add(1)
		h.ServeHTTP(w, r)
	})
}

// downgrade is what an inbound proxy does with upgraded HTTP/1.
func (s *sidecar) downgrade(h http.Handler) http.Handler {
	return s.count(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := origproto.Take(r.Header); ok {
			r.Proto, r.ProtoMajor, r.ProtoMinor = fmt.Sprintf("HTTP/1.%d", p.Minor), 1, p.Minor
			w.Header().Set(origproto.Name, "HTTP/1.1")
		}
		h.ServeHTTP(w, r)
	}))
}

type oneListener struct {
	conn net.Conn
	once sync.Once
	end  sync.Once
	done chan struct{}
}

func (l *oneListener) Accept() (net.Conn, error) {
	var c net.Conn
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}
func (l *oneListener) stop()          { l.end.Do(func() { close(l.done) }) }
func (l *oneListener) Close() error   { return nil }
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }
