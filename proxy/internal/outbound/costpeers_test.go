package outbound

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/weftmesh/weft/proxy/internal/frame"
)

// body1K is every answer.
var body1K = bytes.Repeat([]byte("weft"), 256)

// answer1 is an application of HTTP/1 that allocates nothing for a request.
func answer1(c net.Conn) {
	out := append([]byte("HTTP/1.1 200 OK\r\nDate: Mon, 30 Nov 2026 15:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n"), body1K...)
	buf, n := make([]byte, 8<<10), 0
	for {
		more, err := c.Read(buf[n:])
		if err != nil {
			return
		}
		if n += more; !bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
			continue
		}
		n = 0
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// client1 sends requests one after the other on a few connections.
func client1(t *testing.T, addr, authority string) func(int) {
	t.Helper()
	const conns = 4
	ask := fmt.Appendf(nil, "GET http://%s/path/of/some/length?q=1 HTTP/1.1\r\nHost: %[1]s\r\nUser-Agent: cost/1.0\r\nAccept: */*\r\n"+
		"X-Request-Id: 0000000000\r\n\r\n", authority)
	type conn struct {
		net.Conn
		ask, buf []byte
		n        int
	}
	var all [conns]*conn
	for i := range all {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all[i] = &conn{Conn: c, ask: bytes.Clone(ask), buf: make([]byte, 8<<10), n: i * 1e8}
	}
	one := func(c *conn) error {
		c.n++
		number(c.ask[len(c.ask)-14:len(c.ask)-4], c.n) // no two requests are the same
		if _, err := c.Write(c.ask); err != nil {
			return err
		}
		for got := 0; ; {
			n, err := c.Read(c.buf[got:])
			if err != nil {
				return err
			}
			got += n
			if end := bytes.Index(c.buf[:got], []byte("\r\n\r\n")); end > 0 && got >= end+4+len(body1K) {
				if !bytes.HasPrefix(c.buf, []byte("HTTP/1.1 200")) {
					return fmt.Errorf("the answer is %q", c.buf[:got])
				}
				return nil
			}
		}
	}
	done := make(chan error, conns)
	return func(n int) {
		for _, c := range all {
			go func() {
				for range n / conns {
					if err := one(c); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func number(dst []byte, n int) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// frames reads frames into a buffer of its own.
type frames struct {
	c       net.Conn
	buf     []byte
	at, end int
}

func (f *frames) next() (frame.Head, []byte, error) {
	need := frame.HeaderLen
	for {
		if f.end-f.at >= need {
			h := frame.Parse(f.buf[f.at:])
			if need = frame.HeaderLen + int(h.Length); f.end-f.at >= need {
				p := f.buf[f.at+frame.HeaderLen : f.at+need]
				f.at += need
				return h, p, nil
			}
		}
		f.end = copy(f.buf, f.buf[f.at:f.end])
		f.at = 0
		n, err := f.c.Read(f.buf[f.end:])
		if err != nil {
			return frame.Head{}, nil, err
		}
		f.end += n
	}
}

// empty reports whether all that has been read has been looked at.
func (f *frames) empty() bool { return f.end == f.at }

func block(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	b.Reset()
	for i := 0; i < len(fields); i += 2 { // all of it is in the table by now
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

// first is the block that puts the fields into the table.
func first(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func appendHeaders(b []byte, stream uint32, block []byte, flags frame.Flag) []byte {
	b = frame.AppendHead(b, frame.Head{Length: uint32(len(block)), Type: frame.Headers, Flags: flags | frame.EndHeaders, Stream: stream})
	return append(b, block...)
}

func appendData(b []byte, stream uint32, p []byte, flags frame.Flag) []byte {
	b = frame.AppendHead(b, frame.Head{Length: uint32(len(p)), Type: frame.Data, Flags: flags, Stream: stream})
	return append(b, p...)
}

// answer2 is a gRPC application that allocates nothing for a request.
func answer2(c net.Conn) {
	head, trailer := []string{":status", "200", "content-type", "application/grpc"}, []string{"grpc-status", "0", "grpc-message", ""}
	all := append(append([]string{}, head...), trailer...)
	learn := first(all...)
	learnHead := first(head...)
	learnTrailer := learn[len(learnHead):]
	known := block(all...)
	knownHead := known[:2]
	knownTrailer := known[2:]
	if _, err := io.ReadFull(c, make([]byte, len(frame.Preface))); err != nil {
		return
	}
	out := frame.AppendSettings(nil, [2]uint32{uint32(frame.MaxStreams), 1000})
	in := &frames{c: c, buf: make([]byte, 64<<10)}
	owed, learnt := 0, false
	for {
		h, p, err := in.next()
		if err != nil {
			return
		}
		switch h.Type {
		case frame.Settings:
			if !h.Has(frame.Ack) {
				out = frame.AppendSettingsAck(out)
			}
		case frame.Ping:
			if !h.Has(frame.Ack) {
				out = frame.AppendPing(out, frame.Ack, [8]byte(p))
			}
		case frame.Data:
			if owed += len(p); owed > 32<<10 {
				out = frame.AppendWindow(out, 0, uint32(owed))
				owed = 0
			}
		}
		if (h.Type == frame.Headers || h.Type == frame.Data) && h.Has(frame.EndStream) {
			a, b := knownHead, knownTrailer
			if !learnt {
				a, b, learnt = learnHead, learnTrailer, true
			}
			out = appendHeaders(out, h.Stream, a, 0)
			out = appendData(out, h.Stream, body1K, 0)
			out = appendHeaders(out, h.Stream, b, frame.EndStream)
		}
		if in.empty() && len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
			out = out[:0]
		}
	}
}

// client2 sends gRPC requests, a number of them at once on one connection.
func client2(t *testing.T, addr, authority string) func(int) {
	t.Helper()
	const atOnce = 16
	fields := []string{
		":method", "POST", ":scheme", "http", ":path", "/shop.Books/List", ":authority", authority,
		"content-type", "application/grpc", "user-agent", "grpc-go/1.85.0", "te", "trailers",
	}
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ask := append(binary.BigEndian.AppendUint32([]byte{0}, 100), body1K[:100]...)
	learn, known := first(fields...), block(fields...)
	out := append([]byte(frame.Preface), frame.AppendSettings(nil, [2]uint32{uint32(frame.EnablePush), 0})...)
	in := &frames{c: c, buf: make([]byte, 64<<10)}
	stream, owed := uint32(1), 0
	return func(n int) {
		for asked, over := 0, 0; over < n; {
			for ; asked < n && asked-over < atOnce; asked++ {
				b := known
				if stream == 1 {
					b = learn
				}
				out = appendData(appendHeaders(out, stream, b, 0), stream, ask, frame.EndStream)
				stream += 2
			}
			if len(out) > 0 {
				if _, err := c.Write(out); err != nil {
					t.Error(err)
					return
				}
				out = out[:0]
			}
			for again := true; again; again = !in.empty() {
				h, p, err := in.next()
				if err != nil {
					t.Error(err)
					return
				}
				switch h.Type {
				case frame.Settings:
					if !h.Has(frame.Ack) {
						out = frame.AppendSettingsAck(out)
					}
				case frame.Data:
					if owed += len(p); owed > 16<<10 {
						out = frame.AppendWindow(out, 0, uint32(owed))
						owed = 0
					}
				case frame.Reset, frame.GoAway:
					t.Errorf("got %v %v", h, p)
					return
				}
				if h.Has(frame.EndStream) && (h.Type == frame.Headers || h.Type == frame.Data) {
					over++
				}
			}
		}
	}
}
