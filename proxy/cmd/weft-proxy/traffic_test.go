package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/identity/identitytest"
)

const serverName, clientName = "server.example", "client.example"

// meshedApp starts an application and the proxies of it and of a client.
func meshedApp(t *testing.T, ca *identitytest.CA, h http.Handler, more ...string) (client, server *proxy) {
	t.Helper()
	app := listen(t, host(1))
	go func() { _ = http.Serve(app, h) }()
	t.Cleanup(func() { _ = app.Close() })
	cp := &plane{friend: clientName}
	control := cp.serve(t)
	server = start(t, ca, serverName, host(1), control, more...)
	at := app.Addr().(*net.TCPAddr).AddrPort()
	cp.endpoint = endpointAt(at, server.inbound.Port())
	client = start(t, ca, clientName, host(2), control, more...)
	server.ready(t)
	client.ready(t)
	return client, server
}

func endpointAt(at netip.AddrPort, inbound uint16) *destination.WeightedAddr {
	return &destination.WeightedAddr{
		Addr: &netpb.TcpAddress{
			Ip:   &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{Ipv4: binary.BigEndian.Uint32(at.Addr().AsSlice())}},
			Port: uint32(at.Port()),
		},
		Weight: 1,
		TlsIdentity: &destination.TlsIdentity{Strategy: &destination.TlsIdentity_DnsLikeIdentity_{
			DnsLikeIdentity: &destination.TlsIdentity_DnsLikeIdentity{Name: serverName},
		}},
		ProtocolHint: &destination.ProtocolHint{
			Protocol:        &destination.ProtocolHint_H2_{H2: &destination.ProtocolHint_H2{}},
			OpaqueTransport: &destination.ProtocolHint_OpaqueTransport{InboundPort: uint32(inbound)},
		},
	}
}

func (p *proxy) client() *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.outbound.String()}),
	}}
}

func fetch(t *testing.T, c *http.Client) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.ns.svc.cluster.local/", nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || string(body) != "hello") {
		err = fmt.Errorf("%d %q", res.StatusCode, body)
	}
	return err
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// TestRotationUnderTraffic: certificates live a few seconds, and the identity
// service is away for some of that time.
func TestRotationUnderTraffic(t *testing.T) {
	ca := identitytest.New(t)
	// A busy machine may be late by the 30% of it that are left at a renewal.
	ca.Life(8 * time.Second)
	client, server := meshedApp(t, ca, http.HandlerFunc(hello), "LINKERD2_PROXY_IDENTITY_MIN_REFRESH=100ms")
	began, first := ca.Calls(), shown(t, server)
	c := client.client()
	away := false
	requests := 0
	// Long enough for every certificate that was there at first to have ended.
	end, limit := time.Now().Add(9*time.Second), time.Now().Add(time.Minute)
	for now := time.Now(); now.Before(end) || ca.Calls()-began < 8 && now.Before(limit); now = time.Now() {
		requests++
		if err := fetch(t, c); err != nil {
			t.Fatalf("after %d requests and %d certificates: %v", requests, ca.Calls()-began, err)
		}
		if calls := ca.Calls() - began; !away && calls >= 2 {
			away = true
			ca.Fail(status.Error(codes.Unavailable, "away"))
		} else if away && calls >= 5 {
			ca.Fail(nil)
		}
	}
	if got := ca.Calls() - began; got < 6 {
		t.Errorf("%d certificates asked for", got)
	}
	// The requests went over connections that keep their certificates.
	if last := shown(t, server); !last.After(first) {
		t.Errorf("new connections are shown a certificate that ends at %v, the first one ended at %v", last, first)
	}
	t.Logf("%d requests, asked for %d certificates", requests, ca.Calls()-began)
}

// shown is the end of the certificate that a proxy shows new connections.
func shown(t *testing.T, p *proxy) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{ServerName: serverName, InsecureSkipVerify: true}} // it is only looked at
	c, err := d.DialContext(ctx, "tcp", p.inbound.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
}

// TestDrainKeepsWhatIsOpen: a request in flight and a tunnel outlive the order to
// stop; new connections do not begin; then the process ends by itself.
func TestDrainKeepsWhatIsOpen(t *testing.T) {
	entered, finish := make(chan bool, 1), make(chan bool)
	ca := identitytest.New(t)
	client, server := meshedApp(t, ca, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- true
			<-finish
		}
		hello(w, r)
	}))
	slow := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.ns.svc.cluster.local/slow", nil)
		if err != nil {
			slow <- err
			return
		}
		res, err := client.client().Do(req)
		if err == nil {
			var body []byte
			body, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			if string(body) != "hello" {
				err = errors.Join(err, fmt.Errorf("got %q", body))
			}
		}
		slow <- err
	}()
	select {
	case <-entered:
	case err := <-slow:
		t.Fatalf("the request came to its end before it was at the application: %v", err)
	}
	tunnel, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", client.outbound.String())
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.Close()
	_ = tunnel.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(tunnel, "CONNECT web.ns.svc.cluster.local:80 HTTP/1.1\r\nHost: web.ns.svc.cluster.local:80\r\n\r\n")
	br := bufio.NewReader(tunnel)
	if line, err := br.ReadString('\n'); !strings.Contains(line, "200") {
		t.Fatalf("tunnel: %q, %v", line, err)
	}
	if _, err := br.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(tunnel, "GET / HTTP/1.1\r\nHost: web\r\n\r\n")
	answered := func() {
		t.Helper()
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("in the tunnel: %v", err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	answered()

	client.stop()
	server.stop()
	eventually(t, "the proxies to accept nothing more", func() bool {
		c, err := net.DialTimeout("tcp", client.outbound.String(), time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case code := <-client.code:
		t.Fatalf("ended with %d and a request in flight", code)
	default:
	}
	close(finish)
	if err := <-slow; err != nil {
		t.Errorf("the request in flight: %v", err)
	}
	_ = tunnel.Close()
	for _, p := range []*proxy{client, server} {
		select {
		case code := <-p.code:
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
		case <-time.After(time.Minute):
			t.Error("the proxy did not end")
		}
	}
	for _, p := range []*proxy{client, server} {
		if strings.Contains(p.log.String(), "not everything has ended in time") {
			t.Error("it was the grace period that ended it")
		}
	}
}
