package inbound

import (
	"net/url"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/allow"
)

func TestLocate(t *testing.T) {
	text := func(s string) *string { return &s }
	by := func(prefix string) allow.Verdict { return allow.Verdict{Prefix: prefix, ByPrefix: true} }
	tests := []struct {
		name, from string
		to         allow.Redirect
		verdict    allow.Verdict
		want       string // "" if it cannot be done
	}{
		{"host", "http://a/p?q", allow.Redirect{Host: "b"}, by(""), "http://b/p?q"},
		{"host keeps the port", "http://a:8080/p?q", allow.Redirect{Host: "b"}, by(""), "http://b:8080/p?q"},
		{"port", "http://a/p", allow.Redirect{Port: 8080}, by(""), "http://a:8080/p"},
		{"default port is left out", "http://a:8080/p", allow.Redirect{Port: 80}, by(""), "http://a/p"},
		{"scheme has a port of its own", "http://a:8080/", allow.Redirect{Scheme: "https"}, by(""), "https://a/"},
		{"scheme and port", "http://a:8080/", allow.Redirect{Scheme: "https", Port: 8443}, by(""), "https://a:8443/"},
		{"IPv6", "http://[::1]:80/", allow.Redirect{Scheme: "http"}, by(""), "http://[::1]/"},
		{"path", "http://a/old?q", allow.Redirect{Path: "/new"}, by(""), "http://a/new?q"},
		{"path with a query of its own", "http://a/old?q", allow.Redirect{Path: "/new?w=1"}, by(""), "http://a/new?w=1"},
		{"prefix", "http://a/old/x?q", allow.Redirect{Prefix: text("/new")}, by("/old"), "http://a/new/x?q"},
		{"prefix, nothing after", "http://a/old", allow.Redirect{Prefix: text("/new/")}, by("/old"), "http://a/new"},
		{"prefix to the root", "http://a/old/x", allow.Redirect{Prefix: text("/")}, by("/old"), "http://a/x"},
		{"prefix to the root, nothing after", "http://a/old", allow.Redirect{Prefix: text("")}, by("/old"), "http://a/"},
		{"prefix of everything", "http://a/x", allow.Redirect{Prefix: text("/new")}, by(""), "http://a/new/x"},
		{"escapes stay", "http://a/old/%2Fx", allow.Redirect{Prefix: text("/new")}, by("/old"), "http://a/new/%2Fx"},
		{"no prefix was matched", "http://a/old", allow.Redirect{Prefix: text("/new")}, allow.Verdict{}, ""},
		{"the same place", "http://a/x", allow.Redirect{Host: "a"}, by(""), "http://a/x"},
	}
	for _, tt := range tests {
		from, err := url.Parse(tt.from)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := locate(*from, &tt.to, tt.verdict)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, ok, tt.want)
		}
	}
}
