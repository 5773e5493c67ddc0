package message

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFields(t *testing.T) {
	var f Fields
	f.Add("Accept", "a")
	f.Add("x-one", "1")
	f.Add("accept", "b")
	if got := f.Values("ACCEPT"); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("Values = %v", got)
	}
	if v, ok := f.Find("X-One"); v != "1" || !ok || f.Has("x-two") || f.Get("x-two") != "" {
		t.Errorf("Find = %q, %v", v, ok)
	}
	before := f.Clone(2)
	f.Set("ACCEPT", "c")
	f.Set("x-two", "2")
	if diff := cmp.Diff(Fields{{Name: "Accept", Value: "c"}, {Name: "x-one", Value: "1"}, {Name: "x-two", Value: "2"}}, f); diff != "" {
		t.Errorf("Set (-want +got):\n%s", diff)
	}
	f.Del("X-ONE")
	if diff := cmp.Diff(Fields{{Name: "Accept", Value: "c"}, {Name: "x-two", Value: "2"}}, f); diff != "" {
		t.Errorf("Del (-want +got):\n%s", diff)
	}
	if len(before) != 3 || before[0].Value != "a" {
		t.Errorf("the clone has changed: %v", before)
	}
	if Fields(nil).Clone(0) != nil {
		t.Error("a clone of nothing is something")
	}
}

func TestHasToken(t *testing.T) {
	f := Fields{{Name: "Connection", Value: "keep-alive, \tUpgrade"}, {Name: "connection", Value: "x"}}
	for token, want := range map[string]bool{"upgrade": true, "X": true, "keep": false, "": false} {
		if got := f.HasToken("connection", token); got != want {
			t.Errorf("HasToken(%q) = %v", token, got)
		}
	}
}

func TestTarget(t *testing.T) {
	for _, tt := range []struct{ target, path, query string }{
		{"/a?b?c", "/a", "b?c"}, {"", "/", ""}, {"*", "*", ""}, {"?x", "/", "x"}, {"/a%2f", "/a%2f", ""},
	} {
		r := &Request{Target: tt.target}
		if r.Path() != tt.path || r.Query() != tt.query {
			t.Errorf("%q: %q, %q", tt.target, r.Path(), r.Query())
		}
	}
}

func TestBodyless(t *testing.T) {
	for _, tt := range []struct {
		method string
		status int
		want   bool
	}{
		{"HEAD", 200, true},
		{"GET", 204, true},
		{"GET", 304, true},
		{"GET", 103, true},
		{"CONNECT", 200, true},
		{"CONNECT", 502, false},
		{"GET", 200, false},
		{"POST", 205, false},
	} {
		if got := Bodyless(tt.method, tt.status); got != tt.want {
			t.Errorf("Bodyless(%s, %d) = %v", tt.method, tt.status, got)
		}
	}
}

func TestRequest(t *testing.T) {
	r := &Request{Method: "GET", Fields: Fields{{Name: "Content-Type", Value: "application/grpc+proto"}}}
	if !r.GRPC() || !r.Safe() || (&Request{Method: "POST"}).Safe() {
		t.Error("GRPC or Safe is wrong")
	}
	if HTTP2.Major() != 2 || HTTP11.Major() != 1 || HTTP11.Minor() != 1 || HTTP10.Minor() != 0 {
		t.Error("a version's numbers are wrong")
	}
}

type pieces []string

func (p *pieces) Next() ([]byte, error) {
	if len(*p) == 0 {
		return nil, io.EOF
	}
	first := (*p)[0]
	*p = (*p)[1:]
	if first == "!" {
		return nil, errors.New("broken")
	}
	return []byte(first), nil
}
func (*pieces) Ready() bool     { return true }
func (*pieces) Trailer() Fields { return nil }
func (*pieces) Abort(error)     {}

func TestDrain(t *testing.T) {
	for _, tt := range []struct {
		in   pieces
		most int
		want bool
	}{{pieces{"ab", "cd"}, 4, true}, {pieces{"ab", "cd"}, 3, false}, {pieces{"a", "!"}, 9, false}, {nil, 0, true}} {
		if got := Drain(&tt.in, tt.most); got != tt.want {
			t.Errorf("Drain = %v, want %v", got, tt.want)
		}
	}
}

// TestDelListed: what Connection lists is removed, at a cost that does not grow
// with the product of the list and the lines.
func TestDelListed(t *testing.T) {
	f := Fields{{Name: "Connection", Value: "X-A, keep-alive,,x-b\t"}, {Name: "x-a", Value: "1"}, {Name: "Host", Value: "h"}, {Name: "connection", Value: "host"}, {Name: "X-B", Value: "2"}}
	f.DelListed("connection", func(name string) bool { return Is(name, "host") || Is(name, "keep-alive") })
	want := Fields{{Name: "Connection", Value: "X-A, keep-alive,,x-b\t"}, {Name: "Host", Value: "h"}, {Name: "connection", Value: "host"}}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	var many Fields
	for range 4000 {
		many.Add("X", "y")
	}
	many.Add("Connection", strings.Repeat("a,", 100_000))
	many.DelListed("connection", func(string) bool { return false }) // minutes, if every name went through all lines
	if len(many) != 4001 {
		t.Errorf("%d lines are left", len(many))
	}
}
