package change

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"
	typespb "github.com/linkerd/linkerd2-proxy-api/go/http_types"

	"github.com/weftmesh/weft/proxy/internal/message"
)

func headersOf(pairs ...string) *typespb.Headers {
	h := &typespb.Headers{}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers = append(h.Headers, &typespb.Headers_Header{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return h
}

func TestModify(t *testing.T) {
	h := message.Fields{{Name: "A", Value: "1"}, {Name: "B", Value: "1"}, {Name: "C", Value: "1"}}
	m, err := ModifyOf(&routepb.RequestHeaderModifier{Add: headersOf("a", "2"), Set: headersOf("b", "2"), Remove: []string{"c"}})
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(&h)
	if len(h.Values("A")) != 2 || h.Get("B") != "2" || h.Has("C") {
		t.Errorf("got %v", h)
	}
}

// White space around a value is no part of it, and where a body ends is said by who
// sends it.
func TestChangesAreMadeFit(t *testing.T) {
	got, err := ModifyOf(&routepb.RequestHeaderModifier{
		Add: headersOf("Content-Length", "5", "X-A", " a\t"), Set: headersOf("transfer-encoding", "chunked"), Remove: []string{"content-length"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Modify{Add: []Header{{"X-A", "a"}}, Remove: []string{"content-length"}}, got); diff != "" {
		t.Error(diff)
	}
}

func asked(target string) *message.Request { return &message.Request{Method: "GET", Target: target} }

// by is a route that matched by a prefix.
func by(prefix string) Prefix { return Prefix{prefix, true} }

func TestRedirectTo(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, tt := range []struct {
		name      string
		r         Redirect
		authority string
		target    string
		matched   Prefix
		want      string // "" is none
	}{
		{"nothing", Redirect{}, "x", "/foo", by(""), ""},
		{"a host", Redirect{Host: "y"}, "x", "/a/b?q", by("/a"), "http://y/a/b?q"},
		{"a port stays", Redirect{Host: "y"}, "x:8080", "/a/b?q", by("/a"), "http://y:8080/a/b?q"},
		{"a port", Redirect{Port: 8443}, "x:8080", "/a/b?q", by("/a"), "http://x:8443/a/b?q"},
		{"a default port is left out", Redirect{Port: 80, Host: "y"}, "x:8080", "/a/b?q", by("/a"), "http://y/a/b?q"},
		{"so is that of https", Redirect{Port: 443, Scheme: "https"}, "x:8080", "/a/b?q", by("/a"), "https://x/a/b?q"},
		{"the other scheme's port is none", Redirect{Port: 443}, "x", "/a/b?q", by("/a"), "http://x:443/a/b?q"},
		{"a scheme", Redirect{Scheme: "https"}, "x", "/a/b?q", by("/a"), "https://x/a/b?q"},
		{"a scheme has a port of its own", Redirect{Scheme: "https"}, "x:8080", "/a/b?q", by("/a"), "https://x/a/b?q"},
		{"a scheme and a port", Redirect{Scheme: "https", Port: 8443}, "x:8080", "/", by(""), "https://x:8443/"},
		{"a path", Redirect{Full: "/z"}, "x", "/a/b", by("/a"), "http://x/z"},
		{"a path takes the query away", Redirect{Full: "/z"}, "x", "/a/b?q", by("/a"), "http://x/z"},
		{"a path with a query of its own", Redirect{Full: "/z?w=1"}, "x", "/a/b?q", by("/a"), "http://x/z?w=1"},
		{"a prefix", Redirect{Prefix: text("/new")}, "x", "/a/b", by("/a"), "http://x/new/b"},
		{"a prefix, with a query", Redirect{Prefix: text("/new")}, "x", "/a/b?q", by("/a"), "http://x/new/b?q"},
		{"a prefix of everything", Redirect{Prefix: text("/new")}, "x", "/a/b", by(""), "http://x/new/a/b"},
		{"a prefix that is the root", Redirect{Prefix: text("/new")}, "x", "/a/b", by("/"), "http://x/new/a/b"},
		{"a prefix with a slash", Redirect{Prefix: text("/new")}, "x", "/a/b", by("/a/"), "http://x/new/b"},
		{"a prefix, nothing after", Redirect{Prefix: text("/new/")}, "x", "/a", by("/a"), "http://x/new"},
		{"a prefix away", Redirect{Prefix: text("")}, "x", "/a/b?q", by("/a"), "http://x/b?q"},
		{"a prefix to the root", Redirect{Prefix: text("/")}, "x", "/a/b?q", by("/a"), "http://x/b?q"},
		{"a prefix to the root, nothing after", Redirect{Prefix: text("")}, "x", "/a", by("/a"), "http://x/"},
		{"a path stays as it was written", Redirect{Host: "y"}, "x", "/a%2Fb", by(""), "http://y/a%2Fb"},
		{"so does what follows a prefix", Redirect{Prefix: text("/new")}, "x", "/a/%2Fx", by("/a"), "http://x/new/%2Fx"},
		{"to the same place", Redirect{Host: "x"}, "x", "/a?q", by("/a"), ""},
		{"to the same place, its port said", Redirect{Scheme: "http"}, "x:80", "/a", by("/a"), ""},
		{"an address of six", Redirect{Port: 81}, "[::1]", "/a", by("/a"), "http://[::1]:81/a"},
		{"an address of six, its port left out", Redirect{Scheme: "https"}, "[::1]:80", "/", by(""), "https://[::1]/"},
	} {
		got, ok, err := tt.r.To(asked(tt.target), tt.authority, tt.matched)
		if err != nil || ok != (tt.want != "") || ok && got != tt.want {
			t.Errorf("%s: %q, %v, %v; want %q", tt.name, got, ok, err, tt.want)
		}
	}
	for name, matched := range map[string]Prefix{"none": {}, "an exact one": {Text: "/a"}, "another": by("/b")} {
		if _, _, err := (&Redirect{Prefix: text("/new")}).To(asked("/a"), "x", matched); !errors.Is(err, ErrNoPrefix) {
			t.Errorf("the prefix is %s: %v", name, err)
		}
	}
}

func TestRedirectOf(t *testing.T) {
	for status, want := range map[uint32]int{0: 301, 302: 302, 308: 308} {
		if got, err := RedirectOf(&routepb.RequestRedirect{Status: status}); err != nil || got.Status != want {
			t.Errorf("%d: %+v, %v", status, got, err)
		}
	}
}

func TestRewriteApply(t *testing.T) {
	empty, slash, deep := "", "/", "/a/b/"
	for _, tt := range []struct {
		name    string
		w       Rewrite
		target  string
		matched Prefix
		want    string // "" fails
	}{
		{"a prefix", Rewrite{Prefix: &deep}, "/old/x?q", by("/old"), "/a/b/x?q"},
		{"a prefix with a slash", Rewrite{Prefix: &deep}, "/old/x", by("/old/"), "/a/b/x"},
		{"a prefix that is all", Rewrite{Prefix: &slash}, "/old", by("/old"), "/"},
		{"by nothing", Rewrite{Prefix: &empty}, "/old/x", by("/old"), "/x"},
		{"of the root", Rewrite{Prefix: &deep}, "/x", by("/"), "/a/b/x"},
		{"of everything", Rewrite{Prefix: &deep}, "/x", by(""), "/a/b/x"},
		{"not within a segment", Rewrite{Prefix: &deep}, "/older", by("/old"), ""},
		{"that has not matched", Rewrite{Prefix: &deep}, "/x", Prefix{}, ""},
		{"all of it", Rewrite{Full: "/z"}, "/a?b", Prefix{}, "/z?b"},
		{"what was written stays", Rewrite{Prefix: &deep}, "/old/%2F..?%zz", by("/old"), "/a/b/%2F..?%zz"},
	} {
		r := asked(tt.target)
		err := tt.w.Apply(r, tt.matched)
		if (err != nil) != (tt.want == "") || err == nil && r.Target != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.name, r.Target, err, tt.want)
		}
	}
}
