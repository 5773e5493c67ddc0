package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/weftmesh/weft/proxy/internal/balance"
	"github.com/weftmesh/weft/proxy/internal/change"
	"github.com/weftmesh/weft/proxy/internal/endpoint"
	"github.com/weftmesh/weft/proxy/internal/explicit"
	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/resolve"
)

func TestShelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []int
		closed := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(log)
		}
		made := 0
		s := newShelf(5*time.Second, 2, func(v int) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, v)
		})
		open := func() int { made++; return made }
		take := func(key string) (int, func()) {
			t.Helper()
			v, release, err := s.take(key, open)
			if err != nil {
				t.Fatal(err)
			}
			return v, release
		}
		a, releaseA := take("a")
		again, releaseAgain := take("a")
		if a != again {
			t.Error("the same key gave two values")
		}
		releaseA()
		releaseA() // counts once
		advance(time.Minute)
		if len(closed()) > 0 {
			t.Error("closed while in use")
		}
		releaseAgain()
		advance(4 * time.Second)
		if v, release := take("a"); v != a {
			t.Error("not kept while idle")
		} else {
			release()
		}
		advance(4 * time.Second)
		if len(closed()) > 0 {
			t.Error("idleness is counted from the wrong moment")
		}
		advance(2 * time.Second)
		if diff := cmp.Diff([]int{1}, closed()); diff != "" {
			t.Error(diff)
		}
		// When it is full, the longest idle makes room.
		_, releaseB := take("b")
		_, releaseC := take("c")
		if _, _, err := s.take("d", open); !errors.Is(err, errFull) {
			t.Errorf("a third in use: %v", err)
		}
		releaseC()
		advance(time.Second)
		releaseB()
		_, releaseD := take("d")
		if diff := cmp.Diff([]int{1, 3}, closed()); diff != "" {
			t.Error(diff)
		}
		// What is dropped lives as long as it is used.
		s.drop("d", func(v int) bool { return v == 99 })
		s.drop("d", func(v int) bool { return v == 4 })
		if len(closed()) != 2 || s.len() != 1 {
			t.Errorf("closed %v, %d left", closed(), s.len())
		}
		releaseD()
		if diff := cmp.Diff([]int{1, 3, 4}, closed()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestShelfAgain: who has had something finds it again as long as it is there, and
// keeps it from going while it is used.
func TestShelfAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := 0
		s := newShelf(5*time.Second, 2, func(int) { closed++ })
		at, err := s.hold("a", func() int { return 1 })
		if err != nil {
			t.Fatal(err)
		}
		s.release(at)
		advance(4 * time.Second)
		if !s.again(at) {
			t.Error("gone before its time")
		}
		advance(time.Minute)
		if closed > 0 {
			t.Error("closed while in use")
		}
		s.release(at)
		advance(6 * time.Second)
		if closed != 1 || s.again(at) {
			t.Errorf("closed %d times after its time, or still there", closed)
		}
		if at, err = s.hold("a", func() int { return 2 }); err != nil {
			t.Fatal(err)
		}
		s.drop("a", func(int) bool { return true })
		if s.again(at) {
			t.Error("there after it was dropped")
		}
		if s.release(at); closed != 2 {
			t.Errorf("closed %d times, want 2: who had it has left", closed)
		}
	})
}

func poolOf(up bool) *pool {
	b := balance.New(balance.Config[resolve.Endpoint, *endpoint.Endpoint]{
		Same: resolve.Endpoint.Equal, Open: func(*member) *endpoint.Endpoint { return nil }, Close: func(*endpoint.Endpoint) {}, Failfast: 1,
	})
	if !up { // a request that waits in vain makes it unavailable
		_, _ = b.Acquire(context.Background(), nil)
	}
	return &pool{balancer: b}
}

func TestChoose(t *testing.T) {
	up, down := poolOf(true), poolOf(false)
	type be struct {
		pool   *pool
		weight uint32
	}
	for _, tt := range []struct {
		name     string
		kind     resolve.SplitKind
		backends []be
		at       float64 // the dice
		want     int     // -1 is an error
	}{
		{"empty", resolve.SplitEmpty, []be{{up, 1}}, 0, -1},
		{"no backends", resolve.SplitFirst, nil, 0, -1},
		{"the only one, even if it is down", resolve.SplitRandom, []be{{down, 0}}, 0, 0},
		{"the first", resolve.SplitFirst, []be{{up, 1}, {up, 1}}, 0.9, 0},
		{"the first that is up", resolve.SplitFirst, []be{{down, 1}, {up, 1}}, 0, 1},
		{"none is up", resolve.SplitFirst, []be{{down, 1}, {down, 1}}, 0, -1},
		{"by weight, low", resolve.SplitRandom, []be{{up, 9}, {up, 1}}, 0.89, 0},
		{"by weight, high", resolve.SplitRandom, []be{{up, 9}, {up, 1}}, 0.91, 1},
		{"the very end", resolve.SplitRandom, []be{{up, 1}, {up, 0}}, 0.9999999999999999, 0},
		{"no weight, never", resolve.SplitRandom, []be{{up, 0}, {up, 1}}, 0, 1},
		{"the share of one that is down goes to others", resolve.SplitRandom, []be{{down, 99}, {up, 1}}, 0, 1},
		{"all down", resolve.SplitRandom, []be{{down, 1}, {down, 1}}, 0, -1},
		{"what cannot be sent to keeps its share", resolve.SplitRandom, []be{{nil, 1}, {up, 1}}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := split{kind: tt.kind}
			for _, b := range tt.backends {
				s.backends = append(s.backends, backend{Backend: resolve.Backend{Weight: b.weight}, pool: b.pool})
			}
			if tt.want >= 0 {
				s.backends[tt.want].Path = "wanted"
			}
			got, err := s.choose(func() float64 { return tt.at })
			if (err != nil) != (tt.want < 0) || err == nil && got.Path != "wanted" {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// The table of spec/proxy.md §9.3.
func TestFaults(t *testing.T) {
	dial := func(change func(*endpoint.DialError)) error {
		e := &endpoint.DialError{Err: errors.New("refused")}
		change(e)
		return fmt.Errorf("wrapped: %w", e)
	}
	for _, tt := range []struct {
		err    error
		status int
		code   codes.Code
		close  bool
	}{
		{balance.ErrFailfast, 504, codes.DeadlineExceeded, true},
		{errShed, 503, codes.Unavailable, true},
		{errLimit, 503, codes.Unavailable, true},
		{balance.ErrFull, 503, codes.Unavailable, true},
		{errRequestTimeout, 504, codes.DeadlineExceeded, false},
		{errHeadersTimeout, 504, codes.DeadlineExceeded, false},
		{errResponseTimeout, 504, codes.DeadlineExceeded, false},
		{dial(func(e *endpoint.DialError) { e.Timeout = true }), 504, codes.DeadlineExceeded, true},
		{dial(func(*endpoint.DialError) {}), 502, codes.Unavailable, true},
		{dial(func(e *endpoint.DialError) { e.Identity = true }), 502, codes.Unavailable, true},
		{dial(func(e *endpoint.DialError) { e.Refused = true }), 502, codes.Unavailable, true},
		{io.ErrUnexpectedEOF, 502, codes.Unavailable, true},
		{errRequireID, 502, codes.Unavailable, true},
		{&noDispatcher{resolve.Ref{Kind: "Service", Namespace: "shop", Name: "web"}}, 502, codes.Unavailable, true},
		{errNoRoute, 404, codes.NotFound, false},
		{errInvalid, 500, codes.Internal, true},
		{errTerminal, 500, codes.Internal, true},
		{resolve.ErrUnknown, 502, codes.Unavailable, true},
		{explicit.ErrOriginForm, 400, codes.InvalidArgument, true},
		{failed(&resolve.Fail{Status: 418}), 418, codes.FailedPrecondition, false},
		{failed(&resolve.Fail{Status: 7, GRPC: true}), 200, codes.PermissionDenied, false},
	} {
		got := faultOf(tt.err)
		if got.status != tt.status || got.code != tt.code || got.close != tt.close {
			t.Errorf("faultOf(%v) = %d %v close=%v, want %d %v close=%v", tt.err, got.status, got.code, got.close, tt.status, tt.code, tt.close)
		}
	}
	if got := (&noDispatcher{resolve.Ref{Kind: "Service", Namespace: "shop", Name: "web"}}).Error(); got != "backend for Service shop/web has no dispatcher" {
		t.Errorf("got %q", got)
	}
}

func TestFaultsAreWritten(t *testing.T) {
	f := fault{status: 503, code: codes.Unavailable, message: "why", close: true}
	for _, tt := range []struct {
		name          string
		proto         int
		contentType   string
		message       string
		informational bool
		status        int
		want          http.Header
	}{
		{"HTTP/1", 1, "", "why", true, 503, http.Header{"Content-Length": {"0"}, "L5d-Proxy-Error": {"why"}, "L5d-Proxy-Connection": {"close"}, "Connection": {"close"}}},
		{"silent", 1, "", "why", false, 503, http.Header{"Content-Length": {"0"}, "Connection": {"close"}}},
		{"gRPC", 2, "application/grpc+proto", "100% wr\u00f6ng", true, 200, http.Header{
			"Content-Length": {"0"}, "L5d-Proxy-Error": {"unexpected error"}, "L5d-Proxy-Connection": {"close"}, "Connection": {"close"},
			"Content-Type": {"application/grpc"}, "Grpc-Status": {"14"}, "Grpc-Message": {"unexpected error"},
		}},
		{"gRPC, silent", 2, "application/grpc", "why", false, 200, http.Header{
			"Content-Length": {"0"}, "Connection": {"close"}, "Content-Type": {"application/grpc"}, "Grpc-Status": {"14"},
		}},
		{"gRPC over HTTP/1 is HTTP", 1, "application/grpc", "a\r\nb", true, 503, http.Header{"Content-Length": {"0"}, "L5d-Proxy-Error": {"unexpected error"}, "L5d-Proxy-Connection": {"close"}, "Connection": {"close"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &message.Request{Version: message.HTTP11, Method: "GET", Target: "/"}
			if tt.proto == 2 {
				r.Version = message.HTTP2
			}
			r.Fields.Set("Content-Type", tt.contentType)
			f := f
			f.message = tt.message
			res := f.response(r, tt.informational)
			if res.Status != tt.status {
				t.Errorf("status %d, want %d", res.Status, tt.status)
			}
			if diff := cmp.Diff(tt.want, headerOf(res.Fields)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := percent("50% \x01"); got != "50%25 %01" {
		t.Errorf("got %q", got)
	}
}

func headerOf(f message.Fields) http.Header {
	h := http.Header{}
	for _, line := range f {
		h.Add(line.Name, line.Value)
	}
	return h
}

func TestHygiene(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in, want http.Header
	}{
		{"named by Connection", http.Header{"Connection": {"x-a, X-B", "x-c"}, "X-A": {"1"}, "X-B": {"1"}, "X-C": {"1"}, "X-D": {"1"}}, http.Header{"X-D": {"1"}}},
		{"this hop's", http.Header{"Keep-Alive": {"1"}, "Proxy-Connection": {"x"}, "Transfer-Encoding": {"chunked"}}, http.Header{}},
		{"another proxy's", http.Header{"Proxy-Authorization": {"x"}}, http.Header{"Proxy-Authorization": {"x"}}},
		{"TE of trailers", http.Header{"Te": {"gzip, trailers"}}, http.Header{"Te": {"trailers"}}},
		{"TE for this hop", http.Header{"Te": {"gzip, trailers"}, "Connection": {"TE"}}, http.Header{}},
		{"TE of anything else", http.Header{"Te": {"gzip"}}, http.Header{}},
		{"an upgrade", http.Header{"Connection": {"keep-alive, Upgrade, x-a"}, "X-A": {"1"}, "Upgrade": {"websocket"}}, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}},
		{"Upgrade without Connection", http.Header{"Upgrade": {"websocket"}}, http.Header{}},
		{"HTTP/2 in cleartext", http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"h2c"}, "Http2-Settings": {"AA"}}, http.Header{}},
		{"HTTP/2 in a list", http.Header{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"websocket, h2c"}, "Http2-Settings": {"AA"}}, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}},
		{"what is ours", http.Header{"L5d-Require-Id": {"x"}, "L5d-Dst-Canonical": {"x"}, "L5d-Orig-Proto": {"HTTP/1.1"}, "L5d-Dst-Override": {"x"}}, http.Header{"L5d-Dst-Override": {"x"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var in message.Fields
			for _, name := range slices.Sorted(maps.Keys(tt.in)) {
				for _, v := range tt.in[name] {
					in.Add(name, v)
				}
			}
			if diff := cmp.Diff(tt.want, headerOf(requestFields(nil, &message.Request{Version: message.HTTP11, Fields: in}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"": "", "plain": "plain", "a\nb": "unexpected error", "caf\u00e9": "unexpected error"} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q", in, got)
		}
	}
	if got := printable(strings.Repeat("x", 1000)); len(got) != 512 {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzPercent(f *testing.F) {
	f.Add("100% \u00e9\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range []byte(percent(s)) {
			if c < ' ' || c > '~' {
				t.Errorf("percent(%q) has %#x", s, c)
			}
		}
	})
}

// advance lets virtual time pass, and what it starts come to rest.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A match without a path takes every path, as the prefix of nothing does.
func TestPrefixOfARule(t *testing.T) {
	prefix := func(s string) resolve.Match { return resolve.Match{PathKind: resolve.PathPrefix, Path: s} }
	for _, tt := range []struct {
		name    string
		matches []resolve.Match
		want    change.Prefix
	}{
		{"no match", nil, change.Prefix{Ok: true}},
		{"no path", []resolve.Match{{Method: "GET"}}, change.Prefix{Ok: true}},
		{"a prefix", []resolve.Match{prefix("/a")}, change.Prefix{Text: "/a", Ok: true}},
		{"the longest", []resolve.Match{{}, prefix("/a"), prefix("/a/b"), prefix("/a/bc")}, change.Prefix{Text: "/a/b", Ok: true}},
		{"another", []resolve.Match{prefix("/b")}, change.Prefix{}},
		{"an exact path", []resolve.Match{{PathKind: resolve.PathExact, Path: "/a/b/c"}}, change.Prefix{}},
	} {
		x := &exchange{r: &message.Request{Target: "/a/b/c"}, rule: &rule{Rule: &resolve.Rule{Matches: tt.matches}}}
		if got := x.prefix(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
