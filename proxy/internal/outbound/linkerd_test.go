package outbound

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// fieldsOf is a peer of HTTP/2 that says with which fields each request came, as
// linkerd2-proxy's inbound side would get them.
func fieldsOf(t *testing.T) (*http.Client, <-chan []hpack.HeaderField) {
	t.Helper()
	got := make(chan []hpack.HeaderField, 16)
	at := acceptEach(t, func(c net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		f := http2.NewFramer(c, c)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		if f.WriteSettings() != nil {
			return
		}
		for {
			in, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch in := in.(type) {
			case *http2.SettingsFrame:
				if !in.IsAck() {
					err = f.WriteSettingsAck()
				}
			case *http2.MetaHeadersFrame:
				got <- in.Fields
				var block bytes.Buffer
				_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "204"})
				err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: in.StreamID, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
			}
			if err != nil {
				return
			}
		}
	})
	r := start(t)
	r.controls.service(web, hintedH2(at))
	return r.client(), got
}

// TestUpgradedRequestsKeepTheirHost: linkerd2-proxy's inbound side gives the
// application of an HTTP/1 request the Host that came as a field, and makes none of
// :authority.
func TestUpgradedRequestsKeepTheirHost(t *testing.T) {
	client, fields := fieldsOf(t)
	if res, _ := get(t, client, "http://web.shop.svc.cluster.local/p?q"); res.StatusCode != 204 {
		t.Fatalf("%d", res.StatusCode)
	}
	got := map[string]string{}
	for _, f := range <-fields {
		got[f.Name] = f.Value
	}
	want := map[string]string{
		":method": "GET", ":scheme": "http", ":authority": "web.shop.svc.cluster.local", ":path": "/p?q",
		"host": "web.shop.svc.cluster.local", "l5d-orig-proto": "HTTP/1.1", "user-agent": "Go-http-client/1.1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestHTTP10WithoutHostGainsNone: through two proxies, where the client named no host.
func TestHTTP10WithoutHostGainsNone(t *testing.T) {
	p := startPair(t, "all-authenticated")
	app := heads(t)
	p.controls.set(func() {
		p.controls.profiles[app.String()] = &destpb.DestinationProfile{Endpoint: meshed(app, serverID, p.inbound.Addr().Port())}
	})
	for request, want := range map[string]string{
		"GET /a HTTP/1.0\r\n\r\n":            "GET /a HTTP/1.0\r\n",
		"GET /a HTTP/1.0\r\nHost: x\r\n\r\n": "GET /a HTTP/1.0\r\nHost: x\r\n",
	} {
		conn, br := p.redirected(app)
		_, body := ask(t, conn, br, request)
		_, head := sawOn(body)
		if got := strings.ReplaceAll(head, "host: ", "Host: "); !strings.HasPrefix(got, want) || strings.Contains(got, "Host: ") != strings.Contains(want, "Host: ") || !strings.Contains(got, "l5d-client-id: "+clientID) {
			t.Errorf("%q became %q", request, head)
		}
		_ = conn.Close()
	}
}
