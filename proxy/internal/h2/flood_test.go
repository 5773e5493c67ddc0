package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

// TestFloods: frames that cost the sender nothing, without end. Each ends the
// connection, and what it has made the server keep by then is bounded.
func TestFloods(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin func(*raw)
		frame func(r *raw, i uint32) error
		most  uint32 // of the frames; more must not be taken
	}{
		{
			"streams reset at once (CVE-2023-44487)", nil,
			func(r *raw, i uint32) error {
				block := r.block(get...)
				if err := r.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block, EndStream: true, EndHeaders: true}); err != nil {
					return err
				}
				return r.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
			}, 20_000,
		},
		{
			"CONTINUATION (CVE-2024-27316)",
			func(r *raw) {
				r.must(r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block(get...)}))
			},
			func(r *raw, _ uint32) error { return r.WriteContinuation(1, false, nil) }, 100_000, // as many as fit into the sockets' buffers
		},
		{
			"empty DATA (CVE-2019-9518)",
			func(r *raw) { r.headers(1, false, with(get[1:], ":method: POST")...) },
			func(r *raw, _ uint32) error { return r.WriteData(1, false, nil) }, 100_000,
		},
		{"PING whose answers nobody reads (CVE-2019-9512)", nil, func(r *raw, _ uint32) error { return r.WritePing(false, [8]byte{}) }, 2_000_000},
		{"SETTINGS whose answers nobody reads (CVE-2019-9515)", nil, func(r *raw, _ uint32) error { return r.WriteSettings() }, 2_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, c := client(t, Config{}, echo)
			if tt.begin != nil {
				tt.begin(r)
			}
			var err error
			i := uint32(0)
			for ; err == nil && c.Err() == nil; i++ {
				if i > tt.most {
					t.Fatalf("%d of them are taken", i)
				}
				err = tt.frame(r, i)
			}
			<-c.Ended()
			if bad, ok := errors.AsType[*frame.ConnError](c.Err()); !ok || bad.Code != frame.EnhanceYourCalm {
				t.Errorf("after %d it ended with %v", i, c.Err())
			}
		})
	}
}

// TestSettingsOfManyWindows: one frame that changes the windows of all streams
// thousands of times changes them once.
func TestSettingsOfManyWindows(t *testing.T) {
	hold := make(chan struct{})
	r, c := client(t, Config{MaxStreams: 200}, func(s *Stream) { <-hold; echo(s) })
	for i := range uint32(200) {
		r.headers(2*i+1, true, get...)
	}
	var many []http2.Setting
	for i := range 2700 {
		many = append(many, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(100_000 + i)})
	}
	for range 200 {
		r.must(r.WriteSettings(many...))
	}
	r.must(r.WritePing(false, [8]byte{1}))
	if got := r.outcome(0); got != "pong" {
		t.Fatalf("got %s", got)
	}
	c.mu.Lock()
	for id, s := range c.streams {
		if s.sendWindow != 102_699 {
			t.Errorf("stream %d has a window of %d", id, s.sendWindow)
		}
	}
	c.mu.Unlock()
	close(hold)
}

// TestWhatHTTP1MightReadOtherwise: lengths that agree are one, and a head with too
// many fields is refused however short they are.
func TestWhatHTTP1MightReadOtherwise(t *testing.T) {
	seen := make(chan int, 1)
	r, _ := client(t, Config{MaxList: 1 << 20}, func(s *Stream) { seen <- s.Request().Fields.Count("content-length"); echo(s) })
	r.headers(1, false, with(get[1:], ":method: POST", "content-length: 2", "content-length: 2")...)
	r.must(r.WriteData(1, true, []byte("ok")))
	if n := <-seen; n != 1 {
		t.Errorf("%d lengths have come through", n)
	}
	if got := r.outcome(1); got != "status 200" {
		t.Errorf("equal lengths: %s", got)
	}
	block := r.block(get...)
	for range maxFields { // one byte each: indices of the static table
		block = append(block, 0x80|19)
	}
	r.must(r.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndStream: true, EndHeaders: true}))
	if got := r.outcome(3); got != "status 431" {
		t.Errorf("%d fields: %s", maxFields, got)
	}
}

// TestManyStreams: 2,000 at once on a connection, and 64 MB through one of them.
func TestManyStreams(t *testing.T) {
	c := dial(t, Config{ConnWindow: 1 << 20}, func(nc net.Conn) {
		_ = Server(nc, Config{MaxStreams: 2000, ConnWindow: 1 << 20, Handle: func(s *Stream) { go echo(s) }}).Run()
	})
	if _, _, _, err := ask(t, c, post("/"), nil, nil); err != nil { // the limit is known now
		t.Fatal(err)
	}
	var all []*Stream
	for range 2000 {
		s, err := c.Open(t.Context(), &message.Request{Method: "POST", Authority: "a", Target: "/", Length: message.Unknown}, false)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if n := c.InFlight(); n != 2000 {
		t.Errorf("%d streams are open", n)
	}
	for i, s := range all {
		if err := s.Write(fmt.Appendf(nil, "stream %d", i)); err != nil {
			t.Fatal(err)
		}
		_ = s.Finish(nil)
	}
	for i, s := range all {
		if _, err := s.Response(); err != nil {
			t.Fatal(err)
		}
		if p, err := s.Next(); err != nil || string(p) != fmt.Sprintf("stream %d", i) {
			t.Fatalf("stream %d got %q, %v", i, p, err)
		}
		if _, err := s.Next(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		s.Close()
	}
	if n := c.InFlight(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
	const size = 64 << 20
	s, err := c.Open(t.Context(), post("/large"), false)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		piece := bytes.Repeat([]byte("weft"), 4<<10)
		for n := 0; n < size; n += len(piece) {
			if s.Write(piece) != nil {
				return
			}
		}
		_ = s.Finish(nil)
	}()
	got := 0
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += len(p)
	}
	if got != size {
		t.Errorf("%d bytes came back of %d", got, size)
	}
}
