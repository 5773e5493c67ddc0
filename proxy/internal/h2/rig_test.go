package h2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// pair is two ends of a TCP connection.
func pair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err = new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return a, b
}

// echo answers with the request's body, its trailer and some of its head.
func echo(s *Stream) {
	defer s.Done()
	r := s.Request()
	res := &message.Response{Status: 200, Length: message.Unknown}
	res.Fields.Add("X-Method", r.Method)
	res.Fields.Add("x-target", r.Target)
	res.Fields.Add("x-authority", r.Authority)
	body := s.Body()
	if body == nil {
		res.Length = 0
	}
	if s.Respond(res) != nil {
		return
	}
	for body != nil {
		if !body.Ready() && s.Flush() != nil {
			return
		}
		p, err := body.Next()
		if errors.Is(err, io.EOF) {
			_ = s.Finish(body.Trailer())
			return
		}
		if err != nil {
			s.Abort(err)
			return
		}
		if s.Write(p) != nil {
			return
		}
	}
	_ = s.Finish(nil)
}

// serve runs a server whose streams have a goroutine each.
func serve(t testing.TB, cfg Config, handle func(*Stream)) (net.Conn, *Conn) {
	t.Helper()
	near, far := pair(t)
	cfg.Handle = func(s *Stream) { go handle(s) }
	c := Server(far, cfg)
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run() }()
	t.Cleanup(func() { c.Close(); <-done })
	return near, c
}

// raw is a client that writes frames as it likes.
type raw struct {
	*http2.Framer
	t    testing.TB
	conn net.Conn
	dec  *hpack.Decoder
	enc  *hpack.Encoder
	buf  bytes.Buffer
}

func newRaw(t testing.TB, conn net.Conn) *raw {
	t.Helper()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	r := &raw{Framer: http2.NewFramer(conn, conn), t: t, conn: conn, dec: hpack.NewDecoder(4096, nil)}
	r.enc = hpack.NewEncoder(&r.buf)
	r.AllowIllegalWrites, r.AllowIllegalReads = true, true
	return r
}

// client is a raw client that has done the preface and settings.
func client(t testing.TB, cfg Config, handle func(*Stream)) (*raw, *Conn) {
	t.Helper()
	near, c := serve(t, cfg, handle)
	r := newRaw(t, near)
	r.send([]byte(frame.Preface))
	r.must(r.WriteSettings())
	for {
		f := r.read()
		if s, ok := f.(*http2.SettingsFrame); ok && s.IsAck() {
			return r, c
		}
	}
}

func (r *raw) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) send(b []byte) {
	r.t.Helper()
	_, err := r.conn.Write(b)
	r.must(err)
}

func (r *raw) read() http2.Frame {
	r.t.Helper()
	f, err := r.ReadFrame()
	if err != nil {
		r.t.Fatalf("reading a frame: %v", err)
	}
	return f
}

// block encodes fields, given as "name: value".
func (r *raw) block(lines ...string) []byte {
	r.buf.Reset()
	for _, l := range lines {
		i := strings.Index(l[1:], ": ") + 1
		r.must(r.enc.WriteField(hpack.HeaderField{Name: l[:i], Value: l[i+2:]}))
	}
	return append([]byte(nil), r.buf.Bytes()...)
}

var get = []string{":method: GET", ":scheme: http", ":path: /", ":authority: a.test"}

func with(lines []string, more ...string) []string {
	return append(append([]string(nil), lines...), more...)
}

func (r *raw) headers(stream uint32, end bool, lines ...string) {
	r.t.Helper()
	r.must(r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.block(lines...), EndStream: end, EndHeaders: true}))
}

// outcome is how the server reacts: "status 200", "reset PROTOCOL_ERROR", "goaway
// FLOW_CONTROL_ERROR" or "closed".
func (r *raw) outcome(stream uint32) string {
	r.t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return "goaway " + frame.Code(f.ErrCode).String()
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return "reset " + frame.Code(f.ErrCode).String()
			}
		case *http2.HeadersFrame:
			fields, err := r.dec.DecodeFull(f.HeaderBlockFragment())
			r.must(err)
			if f.StreamID == stream && fields[0].Name == ":status" {
				return "status " + fields[0].Value
			}
		case *http2.PingFrame:
			if f.IsAck() && stream == 0 {
				return "pong"
			}
		}
	}
}
