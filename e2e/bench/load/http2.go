package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// message is what every call says, with gRPC's prefix.
var message = append(binary.BigEndian.AppendUint32([]byte{0}, 100), bytes.Repeat([]byte("q"), 100)...)

// calls asks by gRPC, as often at once as is wanted.
type calls struct {
	frames
	first, again []byte // blocks of a request
	began        bool   // first has been sent
	stream       uint32 // the next
	held         int    // calls for which there is no window
	dec          *hpack.Decoder
	known        [][]byte // blocks that change no table, and say that all is well
	got          int      // bytes of answers that have not ended
	wrong        error    // of the block that is being decoded
}

func newCalls(target string) *calls {
	c := &calls{stream: 1}
	c.reset()
	fields := [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/shop.Books/List"},
		{":authority", target},
		{"content-type", "application/grpc"},
		{"user-agent", "bench"},
		{"te", "trailers"},
	}
	c.remake = func() { c.first, c.again, c.began = c.encode(fields), c.encode(fields), false }
	c.remake()
	c.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" && f.Value != "200" || f.Name == "grpc-status" && f.Value != "0" {
			c.wrong = fmt.Errorf("the answer has %s %s", f.Name, f.Value)
		}
	})
	return c
}

func (c *calls) ask(out []byte) []byte {
	if c.stream == 1 {
		out = append(out, preface...)
		out = appendFrame(out, http2.FrameSettings, 0, 0, []byte{0, byte(http2.SettingEnablePush), 0, 0, 0, 0})
	}
	if c.window < int64(len(message)) {
		c.held++
		return out
	}
	block := c.again
	if !c.began {
		block, c.began = c.first, true
	}
	out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders, c.stream, block)
	out = appendFrame(out, http2.FrameData, http2.FlagDataEndStream, c.stream, message)
	c.window -= int64(len(message))
	c.stream += 2
	return out
}

func (c *calls) take(in, out []byte) (used int, sent []byte, ended int, err error) {
	used, out, err = c.frames.take(in, out, func(f frame) error {
		if f.last() {
			ended++
			c.got -= AnswerSize
		}
		if f.kind == http2.FrameData {
			c.got += len(f.payload)
			return nil
		}
		return c.judge(f)
	})
	if err != nil {
		return used, out, ended, err
	}
	if c.got < 0 {
		return used, out, ended, fmt.Errorf("%d bytes of an answer are missing", -c.got)
	}
	for ; c.held > 0 && c.window >= int64(len(message)); c.held-- {
		out = c.ask(out)
	}
	return used, out, ended, nil
}

// judge looks at the fields of an answer. A block of indexed fields only that was
// right is right again, as long as no other block has changed the table.
func (c *calls) judge(f frame) error {
	block, err := f.fields()
	if err != nil {
		return err
	}
	for _, known := range c.known {
		if bytes.Equal(known, block) {
			return nil
		}
	}
	c.wrong = nil
	if _, err := c.dec.Write(block); err != nil {
		return fmt.Errorf("decoding fields: %w", err)
	}
	if err := c.dec.Close(); err != nil {
		return fmt.Errorf("decoding fields: %w", err)
	}
	if slices.ContainsFunc(block, func(b byte) bool { return b < 0x80 || b == 0xff }) { // RFC 7541 §6.1
		c.known = c.known[:0]
	} else {
		c.known = append(c.known, bytes.Clone(block))
	}
	return c.wrong
}

// answerer2 is the application's side of gRPC.
type answerer2 struct {
	frames
	heads, trailers [2][]byte // blocks, the first time and again
	answered        int       // 1 after the first
	held            []uint32  // streams for which there is no window
}

func newAnswerer2() *answerer2 {
	a := &answerer2{}
	a.reset()
	a.remake = func() {
		for i := range a.heads { // in the order in which they are sent, for they change the table
			a.heads[i] = a.encode([][2]string{{":status", "200"}, {"content-type", "application/grpc"}})
			a.trailers[i] = a.encode([][2]string{{"grpc-status", "0"}})
		}
		a.answered = 0
	}
	a.remake()
	return a
}

func (a *answerer2) begin(out []byte) []byte {
	return appendFrame(out, http2.FrameSettings, 0, 0, nil)
}

func (a *answerer2) answer(out []byte, stream uint32) []byte {
	out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders, stream, a.heads[a.answered])
	out = appendFrame(out, http2.FrameData, 0, stream, body)
	out = appendFrame(out, http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, stream, a.trailers[a.answered])
	a.answered = 1
	a.window -= AnswerSize
	return out
}

func (a *answerer2) take(in, out []byte) (used int, sent []byte, ended int, err error) {
	used, out, err = a.frames.take(in, out, func(f frame) error {
		if f.last() {
			a.held = append(a.held, f.stream)
		}
		return nil
	})
	if err != nil {
		return used, out, 0, err
	}
	n := 0
	for ; n < len(a.held) && a.window >= AnswerSize; n++ {
		out = a.answer(out, a.held[n])
	}
	a.held = slices.Delete(a.held, 0, n)
	return used, out, n, nil
}
