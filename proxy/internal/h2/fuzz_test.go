package h2

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// heard is a connection that says what it was given, and then no more.
type heard struct {
	net.Conn
	in io.Reader
}

func (h *heard) Read(p []byte) (int, error)  { return h.in.Read(p) }
func (h *heard) Write(p []byte) (int, error) { return len(p), nil }

// FuzzServer: no bytes make a server panic or hang.
func FuzzServer(f *testing.F) { fuzz(f, true) }

// FuzzClient is the same with an answer to a request.
func FuzzClient(f *testing.F) { fuzz(f, false) }

func fuzz(f *testing.F, server bool) {
	f.Helper()
	var b bytes.Buffer
	near, _ := net.Pipe()
	r := newRaw(f, near)
	fr := http2.NewFramer(&b, nil)
	_ = fr.WriteSettings()
	lines := get
	if !server {
		lines = []string{":status: 200", "content-length: 4"}
	}
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(lines...), EndHeaders: true})
	_ = fr.WriteData(1, false, []byte("body"))
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block("x-trailer: 1"), EndHeaders: true, EndStream: true})
	_ = fr.WriteGoAway(1, http2.ErrCodeNo, nil)
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, in []byte) {
		near, far := net.Pipe()
		defer func() { _ = near.Close(); _ = far.Close() }()
		if server {
			in = append([]byte(frame.Preface), in...)
			_ = Server(&heard{near, bytes.NewReader(in)}, Config{MaxList: 4096, Handle: func(s *Stream) { go echo(s) }}).Run()
			return
		}
		c := Client(&heard{near, bytes.NewReader(in)}, Config{MaxList: 4096})
		s, err := c.Open(t.Context(), &message.Request{Method: "GET", Authority: "a", Target: "/"}, true)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Run()
		for range maxInterim + 2 {
			if res, err := s.Response(); err != nil || res.Status >= 200 {
				break
			}
		}
		for {
			if _, err := s.Next(); err != nil {
				return
			}
		}
	})
}
