package h2

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestServesAnother has x/net's client speak to our server.
func TestServesAnother(t *testing.T) {
	near, _ := serve(t, Config{}, echo)
	tr := &http2.Transport{AllowHTTP: true} //nolint:staticcheck // x/net's own, of which this is the test
	cc, err := tr.NewClientConn(near)       //nolint:staticcheck // the same
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			body := random(i * 3919)
			pr, pw := io.Pipe()
			go func() { _, _ = pw.Write(body); _ = pw.Close() }()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://a.test/x?i=%d", i), pr)
			if err != nil {
				t.Error(err)
				return
			}
			req.Trailer = http.Header{"X-Sum": {fmt.Sprintf("%x", sha256.Sum256(body))}}
			res, err := cc.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = res.Body.Close() }()
			got, err := io.ReadAll(res.Body)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("request %d: %d bytes, want %d; %v", i, len(got), len(body), err)
			}
			if sum := res.Trailer.Get("X-Sum"); sum != req.Trailer.Get("X-Sum") {
				t.Errorf("request %d: trailer %q", i, sum)
			}
			if h := res.Header; h.Get("X-Target") != fmt.Sprintf("/x?i=%d", i) || h.Get("X-Method") != "POST" || h.Get("X-Authority") != "a.test" {
				t.Errorf("request %d: head %v", i, h)
			}
		})
	}
	wg.Wait()
}

func random(n int) []byte {
	b := make([]byte, n)
	dice := rand.New(rand.NewPCG(uint64(n), 1))
	for i := range b {
		b[i] = byte(dice.Uint32())
	}
	return b
}

// dial is our client on a connection to whatever serves the other end.
func dial(t testing.TB, cfg Config, server func(net.Conn)) *Conn {
	t.Helper()
	near, far := pair(t)
	go server(far)
	c := Client(near, cfg)
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run() }()
	t.Cleanup(func() { c.Close(); <-done })
	return c
}

func xnet(h http.HandlerFunc) func(net.Conn) {
	return func(c net.Conn) { new(http2.Server).ServeConn(c, &http2.ServeConnOpts{Handler: h}) } //nolint:staticcheck // x/net's own, of which this is the test
}

// ask sends a request and reads the whole answer.
func ask(t testing.TB, c *Conn, r *message.Request, body []byte, trailer message.Fields) (*message.Response, []byte, message.Fields, error) {
	t.Helper()
	s, err := c.Open(t.Context(), r, body == nil)
	if err != nil {
		return nil, nil, nil, err
	}
	defer s.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	if body != nil {
		wg.Go(func() {
			for len(body) > 0 {
				n := min(len(body), 10000)
				if s.Write(body[:n]) != nil {
					return
				}
				body = body[n:]
			}
			_ = s.Finish(trailer)
		})
	}
	res, err := s.Response()
	for err == nil && res.Status < 200 {
		res, err = s.Response()
	}
	if err != nil {
		return nil, nil, nil, err
	}
	var all []byte
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			kept := *res
			kept.Fields = kept.Fields.Keep()
			return &kept, all, s.Trailer().Keep(), nil
		}
		if err != nil {
			return res, all, nil, err
		}
		all = append(all, p...)
	}
}

func post(target string) *message.Request {
	r := &message.Request{Method: "POST", Authority: "a.test", Target: target, Length: message.Unknown}
	r.Fields.Add("Content-Type", "text/plain")
	r.Fields.Add("Connection", "close")
	return r
}

// TestAsksAnother has our client speak to x/net's server.
func TestAsksAnother(t *testing.T) {
	c := dial(t, Config{StreamWindow: 1 << 17}, xnet(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Connection") != "" || r.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("head %v", r.Header)
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Path", r.URL.String())
		w.WriteHeader(http.StatusEarlyHints)
		sum := sha256.New()
		_, _ = io.Copy(io.MultiWriter(w, sum), r.Body)
		w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
		w.Header().Set(http.TrailerPrefix+"X-Echo", r.Trailer.Get("X-Say"))
	}))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			body := random(i * 3919)
			res, got, trailer, err := ask(t, c, post(fmt.Sprintf("/%d?q", i)), body, message.Fields{{Name: "X-Say", Value: "hello"}})
			if err != nil || res.Status != 200 || !bytes.Equal(got, body) {
				t.Errorf("request %d: %v, %d bytes, want %d; %v", i, res, len(got), len(body), err)
				return
			}
			if trailer.Get("x-sum") != fmt.Sprintf("%x", sha256.Sum256(body)) {
				t.Errorf("request %d: trailer %v", i, trailer)
			}
			if res.Fields.Get("X-Path") != fmt.Sprintf("/%d?q", i) {
				t.Errorf("request %d: head %v", i, res.Fields)
			}
		})
	}
	wg.Wait()
	if n := c.InFlight(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// TestBothOurs: what no other library is needed for.
func TestBothOurs(t *testing.T) {
	c := dial(t, Config{}, func(nc net.Conn) {
		_ = Server(nc, Config{MaxStreams: 3, Handle: func(s *Stream) { go echo(s) }}).Run()
	})
	if _, _, _, err := ask(t, c, post("/"), nil, nil); err != nil { // the limit is known now
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 30 { // more than may be open: they wait for each other
		wg.Go(func() {
			body := random(i * 5007)
			r := post("/" + strings.Repeat("x", i*100))
			r.Fields.Add("X-Long", strings.Repeat("y", 2000*i)) // CONTINUATION
			res, got, trailer, err := ask(t, c, r, body, message.Fields{{Name: "t", Value: "1"}})
			if err != nil || res.Status != 200 || !bytes.Equal(got, body) || trailer.Get("T") != "1" {
				t.Errorf("request %d: %v, %d bytes, want %d, trailer %v; %v", i, res, len(got), len(body), trailer, err)
			}
		})
	}
	wg.Wait()
}
