package h2

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/message"
)

const (
	protocol = "PROTOCOL_ERROR"
	flow     = "FLOW_CONTROL_ERROR"
	size     = "FRAME_SIZE_ERROR"
	closed   = "STREAM_CLOSED"
	calm     = "ENHANCE_YOUR_CALM"
)

// either are the reactions that end the stream with one of the codes, or the
// connection.
func either(codes ...string) (all []string) {
	for _, c := range codes {
		all = append(all, "reset "+c, "goaway "+c)
	}
	return append(all, "closed")
}

// dead are those that end the connection.
func dead(codes ...string) (all []string) {
	for _, c := range codes {
		all = append(all, "goaway "+c)
	}
	return append(all, "closed")
}

// TestRFC9113 goes through the RFC, section by section, with what a client can do
// wrong or unusually, in the spirit of h2spec. want lists the reactions that are
// right, to stream 1 if it is a stream's.
func TestRFC9113(t *testing.T) {
	ok := []string{"status 200"}
	fine := []string{"pong"}
	body := with([]string{":method: POST"}, get[1:]...)
	held := with(body, "x-hold: 1")
	for _, tt := range []struct {
		name string
		do   func(r *raw)
		want []string
	}{
		{"8.3.1 an authority with a path", func(r *raw) {
			r.headers(1, true, ":method: GET", ":scheme: http", ":path: /", ":authority: a.test/admin?")
		}, either(protocol)},
		{"8.3.1 a host with a path", func(r *raw) { r.headers(1, true, ":method: GET", ":scheme: http", ":path: /", "host: a.test/admin?") }, either(protocol)},
		{"8.3.1 a scheme with a line's end", func(r *raw) {
			r.headers(1, true, ":method: GET", ":scheme: http\r\nx: y", ":path: /", ":authority: a.test")
		}, either(protocol)},
		{"8.3.1 a fragment", func(r *raw) { r.headers(1, true, ":method: GET", ":scheme: http", ":path: /a#b", ":authority: a.test") }, either(protocol)},
		{"8.5 CONNECT with a request in its authority", func(r *raw) {
			r.headers(1, true, ":method: CONNECT", ":authority: a:80 HTTP/1.1\r\nHost: a\r\n\r\nGET /admin HTTP/1.1\r\nHost: a")
		}, either(protocol)},
		{"4.1 an unknown type is ignored", func(r *raw) { r.must(r.WriteRawFrame(0x16, 0, 0, []byte("x"))); r.ping() }, fine},
		{"4.1 unknown flags are ignored", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePing, 0xfe&^1, 0, make([]byte, 8))) }, fine},
		{"4.1 the reserved bit is ignored", func(r *raw) {
			r.send(append([]byte{0, 0, 8, 6, 0, 0x80, 0, 0, 0}, make([]byte, 8)...))
		}, fine},
		{"4.2 a DATA frame of 16384 bytes", func(r *raw) { r.headers(1, false, body...); r.data(1, true, 16384) }, ok},
		{"4.2 a DATA frame that is larger", func(r *raw) { r.headers(1, false, held...); r.data(1, true, 16385) }, either(size)},
		{"4.2 a HEADERS frame that is larger", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameHeaders, 5, 1, make([]byte, 16385))) }, dead(size)},
		{"4.3 a block that is none", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 5, 1, []byte{0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}))
		}, dead("COMPRESSION_ERROR")},
		{"4.3 PRIORITY within a block", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 1, 1, r.block(get...)))
			r.must(r.WritePriority(1, http2.PriorityParam{}))
		}, dead(protocol)},
		{"4.3 another stream's HEADERS within a block", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 1, 1, r.block(get...)))
			r.headers(3, true, get...)
		}, dead(protocol)},

		{"5.1 idle: DATA", func(r *raw) { r.data(1, true, 1) }, either(protocol)},
		{"5.1 idle: RST_STREAM", func(r *raw) { r.must(r.WriteRSTStream(1, http2.ErrCodeCancel)) }, dead(protocol)},
		{"5.1 idle: WINDOW_UPDATE", func(r *raw) { r.must(r.WriteWindowUpdate(1, 1)) }, dead(protocol)},
		{"5.1 idle: CONTINUATION", func(r *raw) { r.must(r.WriteContinuation(1, true, r.block(get...))) }, dead(protocol)},
		{"5.1 half-closed (remote): DATA", func(r *raw) { r.headers(1, true, get...); r.data(1, true, 1) }, append(either(closed), "status 200")},
		{"5.1 half-closed (remote): HEADERS", func(r *raw) { r.hold(); r.headers(1, true, get...); r.headers(1, true, get...) }, either(closed, protocol)},
		{"5.1 closed: HEADERS", func(r *raw) { r.headers(1, true, get...); r.wait200(1); r.headers(1, true, get...) }, either(closed, protocol)},
		{"5.1 closed: DATA", func(r *raw) { r.headers(1, true, get...); r.wait200(1); r.data(1, true, 1) }, either(closed)},
		{"5.1 closed: CONTINUATION", func(r *raw) {
			r.headers(1, true, get...)
			r.wait200(1)
			r.must(r.WriteContinuation(1, true, r.block(get...)))
		}, dead(closed, protocol)},
		{"5.1 closed: WINDOW_UPDATE and RST_STREAM are ignored", func(r *raw) {
			r.headers(1, true, get...)
			r.wait200(1)
			r.must(r.WriteWindowUpdate(1, 1))
			r.must(r.WriteRSTStream(1, http2.ErrCodeCancel))
			r.ping()
		}, fine},
		{"5.1.1 an even stream", func(r *raw) { r.headers(2, true, get...) }, dead(protocol)},
		{"5.1.1 a smaller stream than the last", func(r *raw) {
			r.headers(5, true, get...)
			r.wait200(5)
			r.headers(3, true, get...)
		}, dead(protocol, closed)},
		{"5.1.2 too many streams", func(r *raw) {
			r.hold()
			for id := uint32(3); id < 9; id += 2 {
				r.headers(id, true, with(get, "x-hold: 1")...)
			}
			r.headers(9, true, with(get, "x-hold: 1")...)
			r.headers(11, true, get...)
			if got := r.outcome(11); got != "reset REFUSED_STREAM" && got != "reset "+protocol {
				r.t.Errorf("one too many: %s", got)
			}
			r.ping()
		}, fine},
		{"5.3.1 a stream that depends on itself, HEADERS", func(r *raw) {
			r.must(r.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: r.block(get...), EndStream: true, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1, Weight: 1},
			}))
		}, either(protocol)},
		{"5.3.1 a stream that depends on itself, PRIORITY", func(r *raw) { r.must(r.WritePriority(1, http2.PriorityParam{StreamDep: 1})) }, either(protocol)},
		{"5.4.1 GOAWAY precedes hanging up", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8))) }, []string{"goaway " + protocol}},
		{"5.5 unknown settings are ignored", func(r *raw) { r.must(r.WriteSettings(http2.Setting{ID: 0xff, Val: 1})); r.ping() }, fine},

		{"6.1 DATA on stream 0", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameData, 1, 0, []byte("x"))) }, dead(protocol)},
		{"6.1 too much padding", func(r *raw) {
			r.headers(1, false, held...)
			r.must(r.WriteRawFrame(http2.FrameData, 9, 1, []byte{6, 'a', 'b', 0, 0}))
		}, either(protocol)},
		{"6.1 padding", func(r *raw) {
			r.headers(1, false, body...)
			r.must(r.WriteDataPadded(1, true, []byte("a"), make([]byte, 200)))
		}, ok},
		{"6.2 HEADERS on stream 0", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameHeaders, 5, 0, r.block(get...))) }, dead(protocol)},
		{"6.2 HEADERS with too much padding", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 0xd, 1, append([]byte{200}, r.block(get...)...)))
		}, either(protocol)},
		{"6.2 HEADERS with a priority and padding", func(r *raw) {
			r.must(r.WriteHeaders(http2.HeadersFrameParam{
				StreamID: 1, BlockFragment: r.block(get...), EndStream: true, EndHeaders: true, PadLength: 9, Priority: http2.PriorityParam{StreamDep: 3, Weight: 200},
			}))
		}, ok},
		{"6.3 PRIORITY on stream 0", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePriority, 0, 0, make([]byte, 5))) }, dead(protocol)},
		{"6.3 PRIORITY of 4 bytes", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePriority, 0, 1, make([]byte, 4))) }, either(size)},
		{"6.3 PRIORITY of an idle stream", func(r *raw) {
			r.must(r.WritePriority(7, http2.PriorityParam{StreamDep: 3}))
			r.headers(1, true, get...)
		}, ok},
		{"6.4 RST_STREAM on stream 0", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameRSTStream, 0, 0, make([]byte, 4))) }, dead(protocol)},
		{"6.4 RST_STREAM of 3 bytes", func(r *raw) {
			r.hold()
			r.must(r.WriteRawFrame(http2.FrameRSTStream, 0, 1, make([]byte, 3)))
		}, dead(size)},
		{"6.5 SETTINGS on a stream", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameSettings, 0, 1, nil)) }, dead(protocol)},
		{"6.5 SETTINGS of 5 bytes", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameSettings, 0, 0, make([]byte, 5))) }, dead(size)},
		{"6.5 an acknowledgement with content", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameSettings, 1, 0, make([]byte, 6))) }, dead(size)},
		{"6.5.2 ENABLE_PUSH is a switch", func(r *raw) { r.must(r.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 2})) }, dead(protocol)},
		{"6.5.2 a window of 2^31", func(r *raw) { r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31})) }, dead(flow)},
		{"6.5.2 a frame size of 16383", func(r *raw) { r.must(r.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 16383})) }, dead(protocol)},
		{"6.5.2 a frame size of 2^24", func(r *raw) { r.must(r.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 24})) }, dead(protocol)},
		{"6.5.3 the last of two is obeyed", func(r *raw) {
			r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}))
			r.headers(1, false, body...)
			r.data(1, true, 10)
			if got := r.firstData(1); got != 1 {
				r.t.Errorf("%d bytes of DATA, want 1", got)
			}
			r.ping()
		}, fine},
		{"6.6 PUSH_PROMISE of a client", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePushPromise, 4, 1, make([]byte, 4))) }, dead(protocol)},
		{"6.7 PING is answered", func(r *raw) { r.ping() }, fine},
		{"6.7 PING on a stream", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePing, 0, 1, make([]byte, 8))) }, dead(protocol)},
		{"6.7 PING of 6 bytes", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePing, 0, 0, make([]byte, 6))) }, dead(size)},
		{"6.7 an acknowledgement is not answered", func(r *raw) { r.must(r.WritePing(true, [8]byte{9})); r.ping() }, fine},
		{"6.8 GOAWAY on a stream", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameGoAway, 0, 1, make([]byte, 8))) }, dead(protocol)},
		{"6.9 the window holds DATA back", func(r *raw) {
			r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			r.headers(1, false, body...)
			r.data(1, true, 5)
			r.wait200(1)
			r.must(r.WriteWindowUpdate(1, 2))
			if got := r.firstData(1); got != 2 {
				r.t.Errorf("%d bytes of DATA, want 2", got)
			}
			r.ping()
		}, fine},
		{"6.9 an increment of 0", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 4))) }, dead(protocol)},
		{"6.9 a stream's increment of 0", func(r *raw) {
			r.hold()
			r.must(r.WriteRawFrame(http2.FrameWindowUpdate, 0, 1, make([]byte, 4)))
		}, either(protocol)},
		{"6.9 WINDOW_UPDATE of 3 bytes", func(r *raw) { r.must(r.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, make([]byte, 3))) }, dead(size)},
		{"6.9.1 a window beyond 2^31-1", func(r *raw) {
			r.must(r.WriteWindowUpdate(0, 1<<31-1))
			r.must(r.WriteWindowUpdate(0, 1<<31-1))
		}, dead(flow)},
		{"6.9.1 a stream's window beyond 2^31-1", func(r *raw) {
			r.hold()
			r.must(r.WriteWindowUpdate(1, 1<<31-1))
		}, either(flow)},
		{"6.9.1 more than the stream's window", func(r *raw) {
			r.headers(1, false, held...)
			for range 10 {
				r.data(1, false, 16384)
			}
		}, either(flow)},
		{"6.9.2 a window can become negative", func(r *raw) {
			r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 3}))
			r.headers(1, false, body...)
			r.data(1, true, 5)
			if got := r.firstData(1); got != 3 {
				r.t.Errorf("%d bytes of DATA, want 3", got)
			}
			r.must(r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2}))
			r.must(r.WriteWindowUpdate(1, 2))
			if got := r.firstData(1); got != 1 {
				r.t.Errorf("%d bytes of DATA, want 1", got)
			}
			r.ping()
		}, fine},
		{"6.10 CONTINUATIONs make one block", func(r *raw) {
			b := r.block(with(get, "x-more: yes")...)
			r.must(r.WriteRawFrame(http2.FrameHeaders, 1, 1, b[:3]))
			r.must(r.WriteContinuation(1, false, b[3:5]))
			r.must(r.WriteContinuation(1, true, b[5:]))
		}, ok},
		{"6.10 CONTINUATION after the end of a block", func(r *raw) {
			r.headers(1, true, get...)
			r.must(r.WriteContinuation(1, true, nil))
		}, append(dead(protocol), "status 200")},
		{"6.10 CONTINUATION on stream 0", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 1, 1, r.block(get...)))
			r.must(r.WriteRawFrame(http2.FrameContinuation, 4, 0, nil))
		}, dead(protocol)},
		{"6.10 CONTINUATIONs without end", func(r *raw) {
			r.must(r.WriteRawFrame(http2.FrameHeaders, 1, 1, r.block(get...)))
			for range maxParts + 1 {
				if r.WriteContinuation(1, false, nil) != nil {
					break
				}
			}
		}, dead(calm)},

		{"8.1 a trailer", func(r *raw) {
			r.headers(1, false, body...)
			r.data(1, false, 1)
			r.headers(1, true, "x-trailer: yes")
		}, ok},
		{"8.1 a trailer that is not the end", func(r *raw) {
			r.headers(3, false, held...)
			r.headers(3, false, "x-trailer: yes")
			if got := r.outcome(3); got != "reset "+protocol {
				r.t.Errorf("got %s", got)
			}
			r.ping()
		}, fine},
		{"8.1 a pseudo-header in a trailer", func(r *raw) {
			r.headers(1, false, body...)
			r.headers(1, true, ":method: GET")
		}, append(either(protocol), "status 200")},
		{"8.2.1 a name in upper case", func(r *raw) { r.headers(1, true, with(get, "X-Upper: 1")...) }, either(protocol)},
		{"8.2.1 a name with a space", func(r *raw) { r.headers(1, true, with(get, "x y: 1")...) }, either(protocol)},
		{"8.2.1 a value with a line end", func(r *raw) { r.headers(1, true, with(get, "x: a\r\nb: c")...) }, either(protocol)},
		{"8.2.1 a value that begins with a space", func(r *raw) { r.headers(1, true, with(get, "x:  a")...) }, either(protocol)},
		{"8.2.2 connection", func(r *raw) { r.headers(1, true, with(get, "connection: keep-alive")...) }, either(protocol)},
		{"8.2.2 transfer-encoding", func(r *raw) { r.headers(1, false, with(body, "transfer-encoding: chunked")...) }, either(protocol)},
		{"8.2.2 te: trailers", func(r *raw) { r.headers(1, true, with(get, "te: trailers")...) }, ok},
		{"8.2.2 te: gzip", func(r *raw) { r.headers(1, true, with(get, "te: trailers, deflate")...) }, either(protocol)},
		{"8.3 an unknown pseudo-header", func(r *raw) { r.headers(1, true, with([]string{":test: 1"}, get...)...) }, either(protocol)},
		{"8.3 a response's pseudo-header", func(r *raw) { r.headers(1, true, with(get, ":status: 200")...) }, either(protocol)},
		{"8.3 a pseudo-header behind a field", func(r *raw) {
			r.headers(1, true, ":method: GET", ":scheme: http", "x: 1", ":path: /", ":authority: a")
		}, either(protocol)},
		{"8.3.1 an empty path", func(r *raw) { r.headers(1, true, ":method: GET", ":scheme: http", ":path: ", ":authority: a") }, either(protocol)},
		{"8.3.1 no method", func(r *raw) { r.headers(1, true, get[1:]...) }, either(protocol)},
		{"8.3.1 no scheme", func(r *raw) { r.headers(1, true, get[0], get[2], get[3]) }, either(protocol)},
		{"8.3.1 no path", func(r *raw) { r.headers(1, true, get[0], get[1], get[3]) }, either(protocol)},
		{"8.3.1 two methods", func(r *raw) { r.headers(1, true, with(get, ":method: GET")...) }, either(protocol)},
		{"8.3.1 two paths", func(r *raw) { r.headers(1, true, with(get, ":path: /")...) }, either(protocol)},
		{"8.3.1 a path with a space", func(r *raw) { r.headers(1, true, get[0], get[1], ":path: /a b", get[3]) }, either(protocol)},
		{"8.3.1 a host in place of an authority", func(r *raw) { r.headers(1, true, with(get[:3], "host: a.test")...) }, ok},
		{"8.3.1 two hosts", func(r *raw) { r.headers(1, true, with(get, "host: a.test", "host: b.test")...) }, either(protocol)},
		{"8.3.1 OPTIONS *", func(r *raw) { r.headers(1, true, ":method: OPTIONS", ":scheme: http", ":path: *", ":authority: a") }, ok},
		{"8.1.1 less than content-length", func(r *raw) {
			r.headers(1, false, with(body, "content-length: 2")...)
			r.data(1, true, 1)
		}, append(either(protocol), "status 200")},
		{"8.1.1 more than content-length", func(r *raw) {
			r.headers(1, false, with(body, "content-length: 1")...)
			r.data(1, true, 2)
		}, append(either(protocol), "status 200")},
		{"8.1.1 content-length without content", func(r *raw) { r.headers(1, true, with(body, "content-length: 1")...) }, either(protocol)},
		{"8.1.1 two content-lengths", func(r *raw) { r.headers(1, false, with(body, "content-length: 1", "content-length: 2")...) }, either(protocol)},
		{"8.5 CONNECT", func(r *raw) { r.headers(1, false, ":method: CONNECT", ":authority: a:1") }, ok},
		{"8.5 CONNECT with a path", func(r *raw) { r.headers(1, false, with([]string{":method: CONNECT"}, get[1:]...)...) }, either(protocol)},
		{"10.5 a head that is too long is answered", func(r *raw) {
			lines := get
			for i := range 30 {
				lines = with(lines, fmt.Sprintf("x-%d: %s", i, strings.Repeat("x", 1000)))
			}
			b := r.block(lines...)
			r.must(r.WriteRawFrame(http2.FrameHeaders, 0, 1, b[:16000]))
			r.must(r.WriteContinuation(1, true, b[16000:]))
		}, []string{"status 431"}},
		{"10.5 PINGs whose answers nobody reads", func(r *raw) {
			for range 200000 {
				if r.WritePing(false, [8]byte{1}) != nil {
					break
				}
			}
			for r.outcome(1) == "pong" {
			}
		}, nil},
		{"10.5 streams begun and reset without end", func(r *raw) {
			for id := uint32(1); id < 8000; id += 2 {
				b := r.block(get...)
				if r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndHeaders: true}) != nil || r.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
					break
				}
			}
		}, append(dead(calm), "reset REFUSED_STREAM", "reset INTERNAL_ERROR", "status 200")},
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
			if tt.want == nil {
				return
			}
			stream := uint32(1)
			if tt.want[0] == "pong" {
				stream = 0
			}
			got := r.outcome(stream)
			if slices.Contains(tt.want, got) {
				return
			}
			t.Errorf("got %q, want one of %q", got, tt.want)
		})
	}
}

func (r *raw) ping() { r.must(r.WritePing(false, [8]byte{7})) }

// hold opens stream 1, whose handler says nothing.
func (r *raw) hold() { r.headers(1, true, with(get, "x-hold: 1")...) }

func (r *raw) data(stream uint32, end bool, n int) {
	var flags http2.Flags
	if end {
		flags = 1
	}
	r.must(r.WriteRawFrame(http2.FrameData, flags, stream, make([]byte, n)))
}

func (r *raw) wait200(stream uint32) {
	r.t.Helper()
	if got := r.outcome(stream); got != "status 200" {
		r.t.Fatalf("stream %d: %s", stream, got)
	}
}

// firstData is the length of the next DATA frame of a stream.
func (r *raw) firstData(stream uint32) int {
	r.t.Helper()
	for {
		switch f := r.read().(type) {
		case *http2.DataFrame:
			if f.StreamID == stream && len(f.Data()) > 0 {
				return len(f.Data())
			}
		case *http2.HeadersFrame:
			if _, err := r.dec.DecodeFull(f.HeaderBlockFragment()); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// TestServerMisbehaves is the other role: what a server can do wrong.
func TestServerMisbehaves(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(r *raw)
		want func(error) bool
	}{
		{"no :status", func(r *raw) { r.headers(1, true, "x: 1") }, isStream},
		{"a status that is none", func(r *raw) { r.headers(1, true, ":status: abc") }, isStream},
		{"101", func(r *raw) { r.headers(1, true, ":status: 101") }, isStream},
		{"an interim answer that is the last", func(r *raw) { r.headers(1, true, ":status: 103") }, isStream},
		{"DATA before the head", func(r *raw) { r.data(1, true, 1) }, isStream},
		{"more than content-length", func(r *raw) { r.headers(1, false, ":status: 200", "content-length: 1"); r.data(1, true, 2) }, isStream},
		{"HEADERS on a stream nobody opened", func(r *raw) { r.headers(7, true, ":status: 200") }, isConn},
		{"HEADERS on an even stream", func(r *raw) { r.headers(2, true, ":status: 200") }, isConn},
		{"PUSH_PROMISE", func(r *raw) { r.must(r.WriteRawFrame(http2.FramePushPromise, 4, 1, make([]byte, 4))) }, isConn},
		{"refused", func(r *raw) { r.must(r.WriteRSTStream(1, http2.ErrCodeRefusedStream)) }, isUnsent},
		{"reset", func(r *raw) { r.must(r.WriteRSTStream(1, http2.ErrCodeCancel)) }, func(err error) bool {
			reset, ok := errors.AsType[*ResetError](err)
			return ok && reset.Code == frame.Cancel && !isUnsent(err)
		}},
		{"GOAWAY before it", func(r *raw) { r.must(r.WriteGoAway(0, http2.ErrCodeNo, nil)) }, isUnsent},
		{"GOAWAY after it", func(r *raw) {
			r.must(r.WriteGoAway(1, http2.ErrCodeNo, nil))
			r.headers(1, true, ":status: 200")
		}, func(err error) bool { return err == nil }},
		{"gone", func(r *raw) { _ = r.conn.Close() }, func(err error) bool { return err != nil && !isUnsent(err) }},
		{"a flood of interim answers", func(r *raw) {
			for range maxInterim + 2 {
				r.headers(1, false, ":status: 103")
			}
		}, func(err error) bool { return err == nil || isStream(err) }},
		{"HEAD with a length", func(r *raw) { r.headers(1, true, ":status: 200", "content-length: 100") }, isStream},
		{"204", func(r *raw) { r.headers(1, true, ":status: 204") }, func(err error) bool { return err == nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near, far := pair(t)
			c := Client(near, Config{})
			done := make(chan error, 1)
			go func() { done <- c.Run() }()
			s, err := c.Open(t.Context(), &message.Request{Method: "GET", Authority: "a", Target: "/"}, true)
			if err != nil {
				t.Fatal(err)
			}
			r := newRaw(t, far)
			preface := make([]byte, len(frame.Preface))
			if _, err := far.Read(preface); err != nil {
				t.Fatal(err)
			}
			r.must(r.WriteSettings())
			for {
				if h, ok := r.read().(*http2.HeadersFrame); ok && h.StreamID == 1 {
					break
				}
			}
			tt.do(r)
			_, err = s.Response()
			if err == nil {
				_, err = s.Next()
				for err == nil {
					_, err = s.Next()
				}
				if err.Error() == "EOF" {
					err = nil
				}
			}
			if !tt.want(err) {
				t.Errorf("the answer's error is %v", err)
			}
			c.Close()
			<-done
		})
	}
}

func isStream(err error) bool {
	_, ok := errors.AsType[*frame.StreamError](err)
	return ok
}

func isConn(err error) bool {
	_, ok := errors.AsType[*frame.ConnError](err)
	return ok
}

func isUnsent(err error) bool {
	_, ok := errors.AsType[*UnsentError](err)
	return ok
}
