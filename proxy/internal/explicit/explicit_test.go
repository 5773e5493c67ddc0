package explicit

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

func TestAuthority(t *testing.T) {
	for _, tt := range []struct {
		in   string
		port uint16
		want string // "" is an error
	}{
		{"web.shop.svc.cluster.local:80", 0, "web.shop.svc.cluster.local:80"},
		{"Web.Shop.SVC.cluster.local.:080", 0, "web.shop.svc.cluster.local:80"},
		{"web", 80, "web:80"},
		{"a_b.c:65535", 0, "a_b.c:65535"},
		{"10.1.2.3:8080", 0, "10.1.2.3:8080"},
		{"10.1.2.3", 80, "10.1.2.3:80"},
		{"[fd00::1]:80", 0, "[fd00::1]:80"},
		{"[fd00::1]", 443, "[fd00::1]:443"},
		{"[::ffff:10.1.2.3]:80", 0, "10.1.2.3:80"},
		{"web", 0, ""},
		{"web:", 80, ""},
		{"web:0", 80, ""},
		{"web:65536", 80, ""},
		{"web:-1", 80, ""},
		{"web:+1", 80, ""},
		{"web:80:80", 80, ""},
		{"fd00::1", 80, ""},
		{"[fd00::1", 80, ""},
		{"[fd00::1]80", 80, ""},
		{"[fe80::1%eth0]:80", 80, ""},
		{"[10.1.2.3]:80", 80, ""},
		{"", 80, ""},
		{":80", 80, ""},
		{"we b:80", 80, ""},
		{"-web:80", 80, ""},
		{"a..b:80", 80, ""},
		{"user@web:80", 80, ""},
		{strings.Repeat("a", 64) + ":80", 80, ""},
		{strings.Repeat("a.", 130) + "b:80", 80, ""},
	} {
		got, err := Authority(tt.in, tt.port)
		switch {
		case tt.want == "" && !errors.Is(err, ErrAuthority):
			t.Errorf("Authority(%q) = %v, %v; want an error", tt.in, got, err)
		case tt.want != "" && (err != nil || got.String() != tt.want):
			t.Errorf("Authority(%q) = %v, %v; want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestRequest(t *testing.T) {
	for _, tt := range []struct {
		request string
		want    resolve.Target
		err     error
	}{
		{"GET http://web.shop/p HTTP/1.1\r\nHost: other\r\n\r\n", resolve.Target{Authority: "web.shop:80"}, nil},
		{"GET HTTP://web.shop:8080 HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{Authority: "web.shop:8080"}, nil},
		{"GET http://10.0.0.1:81/ HTTP/1.0\r\n\r\n", resolve.Target{Addr: netip.MustParseAddrPort("10.0.0.1:81")}, nil},
		{"CONNECT web.shop:9000 HTTP/1.1\r\nHost: web.shop:9000\r\n\r\n", resolve.Target{Authority: "web.shop:9000"}, nil},
		{"CONNECT web.shop HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{}, ErrAuthority},
		{"CONNECT http://web.shop/ HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{}, ErrAuthority},
		{"GET / HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{}, ErrOriginForm},
		{"OPTIONS * HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{}, ErrOriginForm},
		{"GET https://web.shop/ HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{}, ErrScheme},
		{"GET ftp://web.shop/ HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{}, ErrScheme},
		{"GET http://we!b/ HTTP/1.1\r\nHost: web.shop\r\n\r\n", resolve.Target{}, ErrAuthority},
	} {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(tt.request)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Request(asMessage(r)); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%q: %v, %v; want %v, %v", tt.request, got, err, tt.want, tt.err)
		}
	}
	h2 := &message.Request{Version: message.HTTP2, Method: http.MethodPost, Authority: "web.shop:9000"}
	if got, err := Request(h2); err != nil || got.Authority != "web.shop:9000" {
		t.Errorf("HTTP/2: %v, %v", got, err)
	}
}

// asMessage is what our scanner makes of a request.
func asMessage(r *http.Request) *message.Request {
	m := &message.Request{Method: r.Method, Authority: r.Host, Absolute: r.URL.IsAbs(), Scheme: r.URL.Scheme}
	if r.URL.Host != "" {
		m.Authority = r.URL.Host
	}
	if r.Method == http.MethodConnect {
		m.Authority = r.RequestURI
	}
	return m
}

func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"web:80", "10.0.0.1", "[::1]:80", "", ":", "[", "a.b.c.:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Authority(s, 80)
		if err != nil {
			return
		}
		again, err := Authority(got.String(), 0)
		if err != nil || again != got {
			t.Errorf("Authority(%q) = %v, which is read as %v, %v", s, got, again, err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add("GET http://web/ HTTP/1.1\r\nHost: web\r\n\r\n")
	f.Add("CONNECT web:80 HTTP/1.1\r\nHost: web:80\r\n\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(s)))
		if err != nil {
			return
		}
		got, err := Request(asMessage(r))
		if err == nil && !got.Addr.IsValid() && got.Authority == "" {
			t.Errorf("%q has no target and no error", s)
		}
	})
}

func ExampleAuthority() {
	to, _ := Authority("Web.Shop.svc.cluster.local.", 80)
	fmt.Println(to)
	// Output: web.shop.svc.cluster.local:80
}
