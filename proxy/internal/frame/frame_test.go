package frame

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"
)

// TestWritten has x/net's framer read what we write.
func TestWritten(t *testing.T) {
	block := bytes.Repeat([]byte("h"), 40)
	out := AppendSettings(nil, [2]uint32{uint32(MaxStreams), 100}, [2]uint32{uint32(FirstSize), 65536})
	out = AppendSettingsAck(out)
	out = AppendPing(out, Ack, [8]byte{1, 2, 3, 4, 5, 6, 7, 8})
	out = AppendReset(out, 3, Cancel)
	out = AppendWindow(out, 0, 1000)
	out = AppendGoAway(out, 7, EnhanceYourCalm, "calm")
	out = AppendBlock(out, 5, block, true, 16)
	out = append(AppendHead(out, Head{Length: 3, Type: Data, Stream: 5, Flags: EndStream}), "abc"...)
	fr := http2.NewFramer(nil, bytes.NewReader(out))
	var got []string
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			break
		}
		got = append(got, f.Header().String())
	}
	want := []string{
		"[FrameHeader SETTINGS len=12]", "[FrameHeader SETTINGS flags=ACK len=0]", "[FrameHeader PING flags=ACK len=8]",
		"[FrameHeader RST_STREAM stream=3 len=4]", "[FrameHeader WINDOW_UPDATE len=4]", "[FrameHeader GOAWAY len=12]",
		"[FrameHeader HEADERS flags=END_STREAM stream=5 len=16]", "[FrameHeader CONTINUATION stream=5 len=16]",
		"[FrameHeader CONTINUATION flags=END_HEADERS stream=5 len=8]", "[FrameHeader DATA flags=END_STREAM stream=5 len=3]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		code   Code
		stream bool // ends the stream only
	}{
		{"DATA on 0", second(DataOf(Head{}, nil)), ProtocolError, false},
		{"padding without length", second(DataOf(Head{Stream: 1, Flags: Padded}, nil)), SizeError, false},
		{"too much padding", second(DataOf(Head{Stream: 1, Flags: Padded}, []byte{2, 0})), ProtocolError, false},
		{"HEADERS on 0", second(HeadersOf(Head{}, nil)), ProtocolError, false},
		{"short priority", second(HeadersOf(Head{Stream: 1, Flags: Weighted}, []byte{0, 0, 0, 0})), SizeError, false},
		{"HEADERS on itself", second(HeadersOf(Head{Stream: 1, Flags: Weighted}, []byte{0, 0, 0, 1, 0})), ProtocolError, true},
		{"PRIORITY on 0", CheckPriority(Head{}, make([]byte, 5)), ProtocolError, false},
		{"PRIORITY of 4", CheckPriority(Head{Stream: 1}, make([]byte, 4)), SizeError, true},
		{"PRIORITY on itself", CheckPriority(Head{Stream: 1}, []byte{0, 0, 0, 1, 0}), ProtocolError, true},
		{"RST_STREAM on 0", second(ResetOf(Head{}, make([]byte, 4))), ProtocolError, false},
		{"RST_STREAM of 3", second(ResetOf(Head{Stream: 1}, make([]byte, 3))), SizeError, false},
		{"PING on 1", second(PingOf(Head{Stream: 1}, make([]byte, 8))), ProtocolError, false},
		{"PING of 6", second(PingOf(Head{}, make([]byte, 6))), SizeError, false},
		{"GOAWAY on 1", third(GoAwayOf(Head{Stream: 1}, make([]byte, 8))), ProtocolError, false},
		{"GOAWAY of 7", third(GoAwayOf(Head{}, make([]byte, 7))), SizeError, false},
		{"WINDOW_UPDATE of 3", second(WindowOf(Head{}, make([]byte, 3))), SizeError, false},
		{"WINDOW_UPDATE of 0", second(WindowOf(Head{}, make([]byte, 4))), ProtocolError, false},
		{"WINDOW_UPDATE of 0 on 1", second(WindowOf(Head{Stream: 1}, make([]byte, 4))), ProtocolError, true},
		{"SETTINGS on 1", settings(Head{Stream: 1}, nil), ProtocolError, false},
		{"SETTINGS of 5", settings(Head{}, make([]byte, 5)), SizeError, false},
		{"SETTINGS ACK of 6", settings(Head{Flags: Ack}, make([]byte, 6)), SizeError, false},
		{"ENABLE_PUSH 2", settings(Head{}, []byte{0, 2, 0, 0, 0, 2}), ProtocolError, false},
		{"window 2^31", settings(Head{}, []byte{0, 4, 0x80, 0, 0, 0}), FlowControlError, false},
		{"frame size 16383", settings(Head{}, []byte{0, 5, 0, 0, 0x3f, 0xff}), ProtocolError, false},
		{"frame size 2^24", settings(Head{}, []byte{0, 5, 1, 0, 0, 0}), ProtocolError, false},
		{"CONNECT 2", settings(Head{}, []byte{0, 8, 0, 0, 0, 2}), ProtocolError, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var conn *ConnError
			var stream *StreamError
			switch {
			case errors.As(tt.err, &conn) && !tt.stream && conn.Code == tt.code:
			case errors.As(tt.err, &stream) && tt.stream && stream.Code == tt.code:
			default:
				t.Errorf("got %v, want %v (of a stream: %v)", tt.err, tt.code, tt.stream)
			}
		})
	}
}

func second[T any](_ T, err error) error      { return err }
func third[T, U any](_ T, _ U, e error) error { return e }

func settings(h Head, p []byte) error {
	return SettingsOf(h, p, func(Setting, uint32) error { return nil })
}

func TestRead(t *testing.T) {
	p, err := DataOf(Head{Stream: 1, Flags: Padded}, []byte{2, 'a', 0, 0})
	if string(p) != "a" || err != nil {
		t.Errorf("DataOf = %q, %v", p, err)
	}
	p, err = HeadersOf(Head{Stream: 3, Flags: Padded | Weighted}, []byte{1, 0, 0, 0, 1, 9, 'h', 0})
	if string(p) != "h" || err != nil {
		t.Errorf("HeadersOf = %q, %v", p, err)
	}
	if err := CheckPriority(Head{Stream: 3}, make([]byte, 5)); err != nil {
		t.Errorf("CheckPriority = %v", err)
	}
	if c, err := ResetOf(Head{Stream: 3}, []byte{0, 0, 0, 8}); c != Cancel || err != nil {
		t.Errorf("ResetOf = %v, %v", c, err)
	}
	last, code, err := GoAwayOf(Head{}, []byte{0x80, 0, 0, 9, 0, 0, 0, 2, 'x'})
	if last != 9 || code != InternalError || err != nil {
		t.Errorf("GoAwayOf = %d, %v, %v", last, code, err)
	}
	if n, err := WindowOf(Head{}, []byte{0x80, 0, 0, 1}); n != 1 || err != nil {
		t.Errorf("WindowOf = %d, %v", n, err)
	}
	if Code(99).String() != "code 99" || Cancel.String() != "CANCEL" {
		t.Error("a code has another name")
	}
}

// FuzzParse: a head read and written is the same; no payload makes a parser panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 8, 0, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderLen {
			return
		}
		h := Parse(b)
		b[5] &= 0x7f
		if back := AppendHead(nil, h); !bytes.Equal(back, b[:HeaderLen]) {
			t.Fatalf("%x became %x", b[:HeaderLen], back)
		}
		p := b[HeaderLen:]
		for _, err := range []error{
			second(DataOf(h, p)), second(HeadersOf(h, p)), CheckPriority(h, p), second(ResetOf(h, p)),
			second(PingOf(h, p)), third(GoAwayOf(h, p)), second(WindowOf(h, p)), settings(h, p),
		} {
			if err != nil && err.Error() == "" {
				t.Fatal("an error without words")
			}
		}
	})
}
