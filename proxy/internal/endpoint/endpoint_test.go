package endpoint

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
	"github.com/weftmesh/weft/proxy/internal/relay"
	"github.com/weftmesh/weft/proxy/internal/resolve"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

const (
	me   = "client.ns.serviceaccount.identity.linkerd.cluster.local"
	them = "server.ns.serviceaccount.identity.linkerd.cluster.local"
)

// reach counts what an endpoint reports.
type reach struct{ up, down atomic.Int64 }

func (r *reach) Up()   { r.up.Add(1) }
func (r *reach) Down() { r.down.Add(1) }

// peer is the other side of a connection: TLS if it has certificates.
type peer struct {
	addr     netip.AddrPort
	accepted atomic.Int64
}

// listen runs serve for each connection.
func listen(t *testing.T, cfg *tls.Config, serve func(net.Conn)) *peer {
	t.Helper()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{addr: lis.Addr().(*net.TCPAddr).AddrPort()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				stop := context.AfterFunc(t.Context(), func() { _ = c.Close() })
				defer stop()
				if cfg != nil {
					c = tls.Server(c, cfg)
				}
				serve(c)
			})
		}
	})
	t.Cleanup(func() { _ = lis.Close(); wg.Wait() })
	return p
}

func serveHTTP2(h http.Handler) func(net.Conn) {
	return func(c net.Conn) { (&http2.Server{}).ServeConn(c, &http2.ServeConnOpts{Handler: h}) } //nolint:staticcheck // the one way to serve a single connection
}

func deps(t *testing.T, ca *identitytest.CA) *Deps {
	t.Helper()
	d := &Deps{Metrics: tell.New(tell.Config{}), Config: config.Direction{ConnectTimeout: time.Second, MaxIdle: 10, PoolIdle: time.Second}}
	if ca != nil {
		d.TLS = ca.Local(t, me)
	}
	return d
}

// call is a POST of a text.
func call(body string) Call {
	r := &message.Request{Version: message.HTTP11, Method: http.MethodPost, Authority: "web", Target: "/", Length: int64(len(body))}
	return Call{Question: relay.Question{Request: r, Body: relay.NewReplay(&once{text: body}, 1000, nil), Guard: new(relay.Guard)}}
}

// call2 is the same over HTTP/2.
func call2(body string) Call {
	c := call(body)
	c.Request.Version, c.HTTP2 = message.HTTP2, true
	return c
}

// once is a body of one piece.
type once struct{ text string }

func (o *once) Next() ([]byte, error) {
	if o.text == "" {
		return nil, io.EOF
	}
	p := o.text
	o.text = ""
	return []byte(p), nil
}
func (*once) Ready() bool             { return true }
func (*once) Trailer() message.Fields { return nil }
func (*once) Abort(error)             {}

// text reads an answer to its end.
func text(a *relay.Answer) (string, error) {
	defer func() { a.Close(0) }()
	var all []byte
	for {
		p, err := a.Body.Next()
		if errors.Is(err, io.EOF) {
			return string(all), nil
		}
		if err != nil {
			return string(all), err
		}
		all = append(all, p...)
	}
}

func TestTransportHeader(t *testing.T) {
	ca := identitytest.New(t)
	cert := ca.Certificate(t, them, time.Now().Add(time.Hour))
	headers := make(chan header.Header, 1)
	p := listen(t, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, NextProtos: []string{header.ALPN}}, func(c net.Conn) {
		if h, err := header.Read(c); err == nil {
			headers <- h
		}
	})
	d := deps(t, ca)
	for _, tt := range []struct {
		name     string
		hint     resolve.Hint
		override string
		session  header.Session
		want     header.Header
	}{
		{"bytes", resolve.HintNone, "", header.None, header.Header{Port: 8080}},
		{"HTTP/1", resolve.HintNone, "", header.HTTP1, header.Header{Port: 8080, Session: header.HTTP1}},
		{"HTTP/2", resolve.HintH2, "", header.HTTP2, header.Header{Port: 8080, Session: header.HTTP2}},
		{"HTTP to what is opaque", resolve.HintOpaque, "", header.HTTP2, header.Header{Port: 8080}},
		{"a gateway", resolve.HintH2, "web.far.svc:90", header.HTTP2, header.Header{Port: 90, Name: "web.far.svc", Session: header.HTTP2}},
		{"a gateway without a port", resolve.HintH2, "web.far.svc", header.None, header.Header{Port: 8080, Name: "web.far.svc"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := New(resolve.Endpoint{
				Addr: netip.AddrPortFrom(p.addr.Addr(), 8080), Identity: them, ServerName: them, InboundPort: p.addr.Port(), Hint: tt.hint, Override: tt.override,
			}, d, new(reach))
			c, err := e.dial(t.Context(), tt.session)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if got := <-headers; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A peer that does not select the protocol gets the bytes as they are.
func TestWithoutAgreementBytesGoRaw(t *testing.T) {
	ca := identitytest.New(t)
	cert := ca.Certificate(t, them, time.Now().Add(time.Hour))
	got := make(chan string, 1)
	p := listen(t, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}, func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		got <- line
	})
	e := New(resolve.Endpoint{Addr: netip.AddrPortFrom(p.addr.Addr(), 8080), Identity: them, ServerName: them, InboundPort: p.addr.Port()}, deps(t, ca), new(reach))
	c, err := e.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "raw\n")
	if line := <-got; line != "raw\n" {
		t.Errorf("got %q", line)
	}
}

func TestDialErrors(t *testing.T) {
	ca, strangers := identitytest.New(t), identitytest.New(t)
	server := func(ca *identitytest.CA, name string, until time.Time) *peer {
		cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.Certificate(t, name, until)}}
		return listen(t, cfg, func(c net.Conn) {
			b, _ := io.ReadAll(c)
			if len(b) > 0 {
				t.Errorf("%d bytes reached %s", len(b), name)
			}
		})
	}
	later := time.Now().Add(time.Hour)
	plaintext := listen(t, nil, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	silent := listen(t, nil, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	closes := listen(t, nil, func(net.Conn) {})
	gone, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	d := deps(t, ca)
	d.Config.ConnectTimeout = time.Minute
	d.Refuse = func(a netip.AddrPort) error {
		if a.Port() == 1 {
			return errors.New("not there")
		}
		return nil
	}
	for _, tt := range []struct {
		name  string
		addr  netip.AddrPort
		plain bool
		want  DialError
		down  int64
	}{
		{"another name", server(ca, me, later).addr, false, DialError{Identity: true}, 1},
		{"another authority", server(strangers, them, later).addr, false, DialError{Identity: true}, 1},
		{"an expired certificate", server(ca, them, time.Now().Add(-time.Minute)).addr, false, DialError{Identity: true}, 1},
		{"plaintext", plaintext.addr, false, DialError{Identity: true}, 1},
		{"silence", silent.addr, false, DialError{Timeout: true}, 1},
		{"an early end", closes.addr, false, DialError{}, 1},
		{"nobody", gone.Addr().(*net.TCPAddr).AddrPort(), true, DialError{}, 1},
		{"what must not be", netip.MustParseAddrPort("127.0.0.1:1"), true, DialError{Refused: true}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := new(reach)
			ep := resolve.Endpoint{Addr: tt.addr, Identity: them, ServerName: them}
			if tt.plain {
				ep.Identity = ""
			}
			d := *d
			if tt.want.Timeout {
				d.Config.ConnectTimeout = 200 * time.Millisecond
			}
			c, err := New(ep, &d, r).Dial(t.Context())
			if err == nil {
				_ = c.Close()
				t.Fatal("it connected")
			}
			var got *DialError
			if !errors.As(err, &got) || got.Identity != tt.want.Identity || got.Timeout != tt.want.Timeout || got.Refused != tt.want.Refused {
				t.Errorf("got %#v (%v), want %+v", got, err, tt.want)
			}
			if r.down.Load() != tt.down || r.up.Load() != 0 {
				t.Errorf("reported up %d, down %d", r.up.Load(), r.down.Load())
			}
			if Unsent(err) == tt.want.Refused {
				t.Errorf("Unsent(%v) = %v", err, Unsent(err))
			}
		})
	}
}

func TestACallerThatLeavesDoesNotBlameTheEndpoint(t *testing.T) {
	silent := listen(t, nil, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	r := new(reach)
	e := New(resolve.Endpoint{Addr: silent.addr, Identity: them, ServerName: them}, deps(t, identitytest.New(t)), r)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for silent.accepted.Load() == 0 {
			select {
			case <-t.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
	}()
	if _, err := e.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if r.down.Load() != 0 {
		t.Error("it was reported down")
	}
}

func TestLocalEndpointIsSpokenToInPlaintext(t *testing.T) {
	got := make(chan string, 1)
	p := listen(t, nil, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		got <- r.Proto + r.Header.Get(origproto.Name)
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	d := deps(t, nil)
	d.Local = []netip.Addr{p.addr.Addr()}
	e := New(resolve.Endpoint{Addr: p.addr, Identity: them, ServerName: them, Hint: resolve.HintH2}, d, new(reach))
	res, err := e.RoundTrip(t.Context(), call(""))
	if err != nil {
		t.Fatal(err)
	}
	res.Close(0)
	if proto := <-got; proto != "HTTP/1.1" || e.Meshed() {
		t.Errorf("it was spoken to in %s, meshed %v", proto, e.Meshed())
	}
}

func TestOneConnectionForAll(t *testing.T) {
	all := make(chan struct{})
	var entered atomic.Int64
	p := listen(t, nil, serveHTTP2(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if entered.Add(1) == 50 {
			close(all)
		}
		<-all
		_, _ = io.Copy(w, r.Body)
	})))
	e := New(resolve.Endpoint{Addr: p.addr, Hint: resolve.HintH2}, deps(t, nil), new(reach))
	defer e.Close()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			res, err := e.RoundTrip(t.Context(), call("x"))
			if err != nil {
				t.Error(err)
				return
			}
			version := res.Version
			if b, err := text(res); err != nil || b != "x" || version != message.HTTP11 {
				t.Errorf("%q, %v, %v", b, err, version)
			}
		})
	}
	wg.Wait()
	if got := p.accepted.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

func TestCloseLetsRequestsEnd(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan struct{})
	p := listen(t, nil, func(c net.Conn) {
		serveHTTP2(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			close(entered)
			<-leave
			_, _ = io.WriteString(w, "whole")
		}))(c)
		close(ended)
	})
	e := New(resolve.Endpoint{Addr: p.addr, Hint: resolve.HintH2}, deps(t, nil), new(reach))
	res, err := e.RoundTrip(t.Context(), call2(""))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	e.Close()
	if _, err := e.RoundTrip(t.Context(), call2("")); !Unsent(err) {
		t.Errorf("a new request got %v", err)
	}
	close(leave)
	if b, err := text(res); err != nil || b != "whole" {
		t.Errorf("the one in flight got %q, %v", b, err)
	}
	<-ended // the connection is closed once it has nothing to do
}

// TestPeerThatLeavesWhileItIsBusy: a server that says GOAWAY still has a request
// to answer. New ones get another connection at once.
func TestPeerThatLeavesWhileItIsBusy(t *testing.T) {
	leave := make(chan struct{})
	p := listen(t, nil, serveHTTP2(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Act") {
		case "stay":
			_ = http.NewResponseController(w).Flush()
			<-leave
		case "go":
			w.Header().Set("Connection", "close") // the library's word for GOAWAY
		}
		_, _ = io.WriteString(w, "whole")
	})))
	e := New(resolve.Endpoint{Addr: p.addr, Hint: resolve.HintH2}, deps(t, nil), new(reach))
	defer e.Close()
	ask := func(act string) *relay.Answer {
		t.Helper()
		for range 3 { // what is not sent is sent again, as the outbound proxy does
			c := call2("")
			c.Request.Fields.Set("Act", act)
			res, err := e.RoundTrip(t.Context(), c)
			if err == nil {
				return res
			}
			if !Unsent(err) {
				t.Fatalf("%s: %v", act, err)
			}
		}
		t.Fatalf("%s is not sent, however often", act)
		return nil
	}
	whole := func(res *relay.Answer) {
		t.Helper()
		if b, err := text(res); err != nil || b != "whole" {
			t.Errorf("%q, %v", b, err)
		}
	}
	long := ask("stay")
	whole(ask("go"))
	for range 50 {
		whole(ask(""))
	}
	close(leave)
	whole(long)
	if got := p.accepted.Load(); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
}
