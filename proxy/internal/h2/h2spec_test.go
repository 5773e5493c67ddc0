package h2

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
)

// TestH2specLeftovers are h2spec's cases that TestRFC9113 has not: a stream that the
// client has reset, blocks of fields in odd places, and unknown codes of errors.
func TestH2specLeftovers(t *testing.T) {
	body := with([]string{":method: POST"}, get[1:]...)
	reset := func(r *raw) { r.hold(); r.must(r.WriteRSTStream(1, http2.ErrCodeCancel)) }
	for _, tt := range []struct {
		name string
		do   func(r *raw)
		want []string
	}{
		{"5.1 half-closed (remote): CONTINUATION", func(r *raw) {
			r.hold()
			r.must(r.WriteContinuation(1, true, r.block(get...)))
		}, dead(closed, protocol)},
		{"5.1 reset by the client: DATA", func(r *raw) { reset(r); r.data(1, true, 1) }, either(closed)},
		{"5.1 reset by the client: HEADERS", func(r *raw) { reset(r); r.headers(1, true, get...) }, either(closed)},
		{"5.1 reset by the client: CONTINUATION", func(r *raw) { reset(r); r.must(r.WriteContinuation(1, true, r.block(get...))) }, dead(closed, protocol)},
		{"5.5 an unknown frame within a block", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 1, 1, r.block(get...)))
			r.must(r.WriteRawFrame(0x16, 0, 0, make([]byte, 8)))
		}, dead(protocol)},
		{"6.10 DATA within a block", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 0, 1, r.block(body...)))
			r.data(1, true, 1)
		}, dead(protocol)},
		{"6.10 CONTINUATION behind one that ended its block", func(r *raw) {
			b := r.block(with(get, "x-hold: 1")...)
			r.must(r.WriteRawFrame(http2.FrameHeaders, 1, 1, b[:3]))
			r.must(r.WriteContinuation(1, true, b[3:]))
			r.must(r.WriteContinuation(1, true, nil))
		}, dead(protocol)},
		{"6.10 CONTINUATION behind DATA", func(r *raw) {
			r.headers(1, false, with(body, "x-hold: 1")...)
			r.data(1, true, 1)
			r.must(r.WriteContinuation(1, true, r.block("x-more: 1")))
		}, dead(protocol)},
		{"6.3 PRIORITY of 6 bytes", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePriority, 0, 1, make([]byte, 6))) }, either(size)},
		{"6.4 RST_STREAM of 5 bytes", func(r *raw) { r.hold(); r.must(r.WriteRawFrame(http2.FrameRSTStream, 0, 1, make([]byte, 5))) }, dead(size)},
		{"6.8 GOAWAY of 7 bytes", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameGoAway, 0, 0, make([]byte, 7))) }, dead(size)},
		{"7 GOAWAY with a code nobody knows", func(r *raw) {
			r.hold()
			r.must(r.WriteGoAway(0, 0xff, nil))
			r.ping()
		}, []string{"pong", "closed"}},
		{"7 RST_STREAM with a code nobody knows", func(r *raw) { r.hold(); r.must(r.WriteRSTStream(1, 0xff)); r.ping() }, []string{"pong"}},
		{"8.3.1 two schemes", func(r *raw) { r.headers(1, true, with(get, ":scheme: http")...) }, either(protocol)},
		{"8.3.1 two authorities", func(r *raw) { r.headers(1, true, with(get, ":authority: a.test")...) }, either(protocol)},
		{"8.1.1 less than content-length, in pieces", func(r *raw) {
			r.headers(1, false, with(body, "content-length: 5", "x-hold: 1")...)
			r.data(1, false, 2)
			r.data(1, true, 2)
		}, either(protocol)},
		{"8.1.1 more than content-length, in pieces", func(r *raw) {
			r.headers(1, false, with(body, "content-length: 3", "x-hold: 1")...)
			r.data(1, false, 2)
			r.data(1, true, 2)
		}, either(protocol)},
		{"8.1.1 a trailer before content-length is reached", func(r *raw) {
			r.headers(1, false, with(body, "content-length: 3", "x-hold: 1")...)
			r.data(1, false, 2)
			r.headers(1, true, "x-trailer: 1")
		}, either(protocol)},
		{"8.2.1 an empty name", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 5, 1, append(r.block(get...), 0x00, 0x00, 0x01, 'x')))
		}, either(protocol)},
		{"8.2.2 upgrade, keep-alive and proxy-connection", func(r *raw) {
			for i, name := range []string{"upgrade: x", "keep-alive: 5", "proxy-connection: close"} {
				id := uint32(2*i + 3)
				r.headers(id, true, with(get, name)...)
				if got := r.outcome(id); got != "reset "+protocol {
					r.t.Errorf("%s: %s", name, got)
				}
			}
			r.ping()
		}, []string{"pong"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hold := make(chan struct{})
			t.Cleanup(func() { close(hold) })
			r, _ := client(t, Config{MaxStreams: 5, MaxList: 20000}, func(s *Stream) {
				if s.Request().Fields.Has("x-hold") {
					<-hold
				}
				echo(s)
			})
			tt.do(r)
			stream := uint32(1)
			if tt.want[0] == "pong" {
				stream = 0
			}
			if got := r.outcome(stream); !slices.Contains(tt.want, got) {
				t.Errorf("got %q, want one of %q", got, tt.want)
			}
		})
	}
}

// TestPrefaces is RFC 9113 §3.4: what a connection begins with, in either role.
func TestPrefaces(t *testing.T) {
	for name, said := range map[string]string{
		"not HTTP/2":            "INVALID CONNECTION PREFACE\r\n\r\n",
		"nearly":                frame.Preface[:23] + "x",
		"HTTP/1":                "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"no SETTINGS behind it": frame.Preface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678",
		"an acknowledgement":    frame.Preface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			near, _ := serve(t, Config{}, echo)
			r := newRaw(t, near)
			r.send([]byte(said))
			if f, ok := r.read().(*http2.SettingsFrame); !ok || f.IsAck() {
				t.Errorf("the server begins with %v", f)
			}
			if got := r.outcome(1); got != "goaway "+protocol && got != "closed" {
				t.Errorf("got %q", got)
			}
		})
	}
	t.Run("ours", func(t *testing.T) {
		near, far := pair(t)
		c := Client(near, Config{})
		go func() { _ = c.Run() }()
		t.Cleanup(c.Close)
		r := newRaw(t, far)
		got := make([]byte, len(frame.Preface))
		if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, []byte(frame.Preface)) {
			t.Fatalf("%q, %v", got, err)
		}
		s, ok := r.read().(*http2.SettingsFrame)
		if !ok {
			t.Fatalf("the preface is followed by %v", s)
		}
		if v, said := s.Value(http2.SettingEnablePush); !said || v != 0 {
			t.Errorf("ENABLE_PUSH %d, said %v", v, said)
		}
		r.must(r.WriteSettings())
		for {
			if s, ok := r.read().(*http2.SettingsFrame); ok && s.IsAck() { // 6.5.3
				return
			}
		}
	})
}

// TestSmallerTable is RFC 7541 §4.2: a table that the peer has made smaller is used
// as such, and the next block says so first.
func TestSmallerTable(t *testing.T) {
	r, _ := client(t, Config{}, echo)
	for id := uint32(1); id < 7; id += 2 { // until what is said is in the table
		r.headers(id, true, get...)
		r.wait200(id)
	}
	r.must(r.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}))
	r.dec.SetAllowedMaxDynamicTableSize(0)
	for id := uint32(7); id < 15; id += 2 {
		r.headers(id, true, get...)
		for {
			f, ok := r.read().(*http2.HeadersFrame)
			if !ok {
				continue
			}
			block := f.HeaderBlockFragment()
			if id == 7 && block[0] != 0x20 {
				t.Errorf("the first block begins with %#x, want the size 0", block[0])
			}
			fields, err := r.dec.DecodeFull(block) // an index into the table would be an error
			if err != nil || fields[0].Value != "200" {
				t.Errorf("stream %d: %v, %v", id, fields, err)
			}
			break
		}
	}
}

// TestExhaustedWindowsDoNotWedge: streams whose bodies nobody reads use the
// connection's window up. Others are answered meanwhile, and when one is read at
// last, all goes on.
func TestExhaustedWindowsDoNotWedge(t *testing.T) {
	held := make(chan *Stream, 2)
	r, _ := client(t, Config{ConnWindow: frame.FirstWindow}, func(s *Stream) {
		if s.Request().Fields.Has("x-hold") {
			held <- s
			return
		}
		echo(s)
	})
	body := with([]string{":method: POST"}, get[1:]...)
	r.headers(1, false, with(body, "x-hold: 1")...)
	for left := frame.FirstWindow; left > 0; left -= 16384 {
		r.data(1, false, min(left, 16384))
	}
	r.headers(3, true, get...) // needs no window
	r.wait200(3)
	r.headers(5, false, body...) // has to wait for it
	s := <-held
	go func() {
		for n := 0; n < frame.FirstWindow; {
			p, err := s.Next()
			if err != nil {
				return
			}
			n += len(p)
		}
		_, _ = s.Next() // gives the last piece back
	}()
	for paid := uint32(0); paid < 16384; {
		switch f := r.read().(type) {
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				paid += f.Increment
			}
		case *http2.HeadersFrame: // the other's, which the table must not miss
			_, err := r.dec.DecodeFull(f.HeaderBlockFragment())
			r.must(err)
		}
	}
	r.data(5, true, 16384)
	if n := r.firstData(5); n == 0 {
		t.Error("the one that waited for the window gets nothing")
	}
	r.must(r.WriteRSTStream(1, http2.ErrCodeCancel))
	r.ping()
	if got := r.outcome(0); got != "pong" {
		t.Errorf("got %q", got)
	}
	s.Done()
}
