package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/header"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/origproto"
)

// elsewhere is the outbound side behind a gateway: it tells what it was asked.
type elsewhere struct{}

const (
	webName  = "web.shop.svc.cluster.local"
	lostName = "lost.shop.svc.cluster.local"
)

func (elsewhere) Known(_ context.Context, name string) error {
	if name == lostName+":8080" {
		return errors.New("no such service")
	}
	return nil
}

func (elsewhere) HTTP(c message.Client, name string, from netip.AddrPort) {
	r := c.Request()
	res := &message.Response{Version: r.Version, Status: 200, Length: message.Unknown}
	res.Fields.Add("X-Saw", fmt.Sprintf("%s %d.%d %s %s host=%s", name, r.Version.Major(), r.Version.Minor(), r.Authority, r.Target, r.Fields.Get("host")))
	res.Fields.Add("X-Forwarded-As", r.Fields.Get("forwarded"))
	res.Fields.Add("X-Absolute", fmt.Sprint(r.Absolute, from.Port() != 0))
	if c.Respond(res) == nil {
		_ = c.Finish(nil)
	}
}

func (elsewhere) TCP(c net.Conn, name string) error {
	_, _ = io.WriteString(c, "bytes for "+name)
	return c.Close()
}

func gatewayWorld(t *testing.T, suffixes ...string) *world {
	t.Helper()
	w := newWorld(t, open, func(c *config.Config) { c.Policy.Gateway = suffixes })
	w.in.deps.Gateway = elsewhere{}
	return w.run()
}

// ask sends a request on a direct connection.
func (w *world) ask(who string, h header.Header, headers ...string) *http.Response {
	w.t.Helper()
	c := client(w.t, h.Session == header.HTTP2, func() (net.Conn, error) { return w.direct(w.ca.Local(w.t, who), h), nil })
	res, _ := get(w.t, c, "http://anything/books?x=1", headers...)
	return res
}

func TestGateway(t *testing.T) {
	w := gatewayWorld(t, "svc.cluster.local")
	for _, tt := range []struct {
		name    string
		h       header.Header
		headers []string
		saw     string
	}{
		{"HTTP/1", header.Header{Port: 8080, Name: webName, Session: header.HTTP1}, nil, webName + ":8080 1.1 " + webName + ":8080 /books?x=1 host=" + webName + ":8080"},
		{"port 80", header.Header{Port: 80, Name: webName + ".", Session: header.HTTP1}, nil, webName + ":80 1.1 " + webName + " /books?x=1 host=" + webName},
		{"HTTP/2", header.Header{Port: 8080, Name: webName, Session: header.HTTP2}, nil, webName + ":8080 2.0 " + webName + ":8080 /books?x=1 host="},
		{"HTTP/1 in HTTP/2", header.Header{Port: 8080, Name: webName, Session: header.HTTP2}, []string{origproto.Name, "HTTP/1.1"}, webName + ":8080 1.1 " + webName + ":8080 /books?x=1 host=" + webName + ":8080"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := w.ask(alice, tt.h, tt.headers...)
			host := webName + ":8080"
			if tt.h.Port == 80 {
				host = webName
			}
			forwarded := "by=" + server + ";for=" + alice + ";host=" + host + ";proto=https"
			if res.StatusCode != 200 || res.Header.Get("X-Saw") != tt.saw || res.Header.Get("X-Forwarded-As") != forwarded || res.Header.Get("X-Absolute") != "false true" {
				t.Errorf("%d %v\nwant %q, %q", res.StatusCode, res.Header, tt.saw, forwarded)
			}
			if got := res.Header.Get(origproto.Name); (got != "") != (tt.headers != nil) {
				t.Errorf("%s: %q", origproto.Name, got)
			}
		})
	}
	t.Run("absolute form stays", func(t *testing.T) {
		res := w.ask(alice, header.Header{Port: 8080, Name: webName, Session: header.HTTP2}, origproto.Name, "HTTP/1.1; absolute-form")
		if res.Header.Get("X-Absolute") != "true true" {
			t.Errorf("%v", res.Header)
		}
	})
	t.Run("bytes", func(t *testing.T) {
		b, err := io.ReadAll(w.direct(w.ca.Local(t, alice), header.Header{Port: 8080, Name: webName}))
		if string(b) != "bytes for "+webName+":8080" {
			t.Errorf("%q, %v", b, err)
		}
	})
}

func TestGatewayRefuses(t *testing.T) {
	w := gatewayWorld(t, "svc.cluster.local")
	ask := header.Header{Port: 8080, Name: webName, Session: header.HTTP1}
	for _, tt := range []struct {
		name, client string
		h            header.Header
		headers      []string
		status       int
		reason       string
	}{
		{"another domain", alice, header.Header{Port: 8080, Name: "example.com", Session: header.HTTP1}, nil, 404, "gateway domain invalid"},
		{"a name that nobody knows", alice, header.Header{Port: 8080, Name: lostName, Session: header.HTTP1}, nil, 404, "gateway domain invalid"},
		{"itself", server, ask, nil, 508, "gateway loop"},
		{"a request that has been here", alice, ask, []string{"Forwarded", "for=x;By=" + server}, 508, "gateway loop"},
		{"a request that has been here, among others", alice, ask, []string{"Forwarded", "by=other;for=x, for=y;by=\"" + server + "\""}, 508, "gateway loop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := w.ask(tt.client, tt.h, tt.headers...)
			if res.StatusCode != tt.status || res.Header.Get("l5d-proxy-error") != tt.reason {
				t.Errorf("%d %v, want %d %s", res.StatusCode, res.Header, tt.status, tt.reason)
			}
		})
	}
	res := w.ask(alice, header.Header{Port: 8080, Name: "example.com", Session: header.HTTP2}, "content-type", "application/grpc")
	if res.StatusCode != 200 || res.Header.Get("grpc-status") != "5" {
		t.Errorf("gRPC, another domain: %d %v", res.StatusCode, res.Header)
	}
	res = w.ask(server, header.Header{Port: 8080, Name: webName, Session: header.HTTP2}, "content-type", "application/grpc")
	if res.StatusCode != 200 || res.Header.Get("grpc-status") != "10" {
		t.Errorf("gRPC, itself: %d %v", res.StatusCode, res.Header)
	}
	if b, _ := io.ReadAll(w.direct(w.ca.Local(t, alice), header.Header{Port: 8080, Name: "example.com"})); len(b) != 0 {
		t.Errorf("bytes for another domain: %q", b)
	}
	if got := w.meter("inbound_http_errors_total", `"gateway loop"`); got != 4 {
		t.Errorf("inbound_http_errors_total = %v for loops, want 4", got)
	}

	none := gatewayWorld(t)
	if res := none.ask(alice, ask); res.StatusCode != 404 {
		t.Errorf("without suffixes: %d", res.StatusCode)
	}
	closed := newWorld(t, func(c *config.Config) { c.Policy.Gateway = config.Suffixes{""} }) // deny
	closed.in.deps.Gateway = elsewhere{}
	closed.run()
	if res := closed.ask(alice, ask); res.StatusCode != 403 {
		t.Errorf("denied by the policy of the inbound port: %d", res.StatusCode)
	}
}

// TestDirectMetrics counts direct connections by what their header says.
func TestDirectMetrics(t *testing.T) {
	at := app(t, hello)
	w := gatewayWorld(t, "svc.cluster.local")
	for _, session := range []header.Session{header.None, header.HTTP1, header.HTTP2} {
		for _, name := range []string{"", webName} {
			h := header.Header{Port: at.Port(), Name: name, Session: session}
			if session == header.None {
				c := w.direct(w.ca.Local(t, alice), h)
				_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
				_, _ = io.ReadAll(c)
			} else {
				w.ask(alice, h)
			}
			got := w.seriesOf("inbound_tcp_transport_header_connections_total", map[string]string{
				"session_protocol": session.String(), "target_name": name, "target_port": portText(at.Port()), "client_id": alice,
			})
			if got != 1 {
				t.Errorf("%q %q: counted %v times", session, name, got)
			}
		}
	}
}

// seriesOf sums the series of a family that have all the labels.
func (w *world) seriesOf(name string, labels map[string]string) float64 {
	w.t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for name, value := range labels {
				if have[name] != value {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}
