package load

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

var preface = []byte(http2.ClientPreface)

// often is how many bytes are received before they are credited.
const often = 16 << 10

// frames is what both sides of an HTTP/2 connection have in common.
type frames struct {
	window int64 // of what may be sent on the connection, in bytes
	owed   uint32
	enc    *hpack.Encoder
	block  bytes.Buffer
	remake func() // the blocks, for another table
}

func (f *frames) reset() {
	f.window = 65535
	f.enc = hpack.NewEncoder(&f.block)
}

// encode makes a block of fields. Of the same fields it makes another the second
// time: of nothing but what the table holds, and right as long as the table does.
func (f *frames) encode(fields [][2]string) []byte {
	f.block.Reset()
	for _, field := range fields {
		_ = f.enc.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // to a buffer
	}
	return bytes.Clone(f.block.Bytes())
}

func appendFrame(out []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	out = append(out, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	out = binary.BigEndian.AppendUint32(out, stream)
	return append(out, payload...)
}

func appendCredit(out []byte, n uint32) []byte {
	var p [4]byte
	binary.BigEndian.PutUint32(p[:], n)
	return appendFrame(out, http2.FrameWindowUpdate, 0, 0, p[:])
}

// frame is one that has come.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
}

// last reports whether it is the last of its stream.
func (f frame) last() bool {
	return f.flags&http2.FlagDataEndStream != 0 && (f.kind == http2.FrameData || f.kind == http2.FrameHeaders)
}

const frameHead = 9

// next is the first frame of what has come, if it is whole.
func next(in []byte) (f frame, size int, ok bool) {
	if len(in) < frameHead {
		return frame{}, 0, false
	}
	size = frameHead + int(in[0])<<16 + int(in[1])<<8 + int(in[2])
	if len(in) < size {
		return frame{}, 0, false
	}
	return frame{http2.FrameType(in[3]), http2.Flags(in[4]), binary.BigEndian.Uint32(in[5:]) &^ (1 << 31), in[frameHead:size]}, size, true
}

// connection works off what is not of a request or an answer.
func (f *frames) connection(of frame, out []byte) ([]byte, error) {
	switch of.kind {
	case http2.FrameSettings:
		if of.flags&http2.FlagSettingsAck != 0 {
			return out, nil
		}
		for p := of.payload; len(p) >= 6; p = p[6:] {
			switch value := binary.BigEndian.Uint32(p[2:]); http2.SettingID(binary.BigEndian.Uint16(p)) {
			case http2.SettingHeaderTableSize:
				f.enc.SetMaxDynamicTableSizeLimit(value) // 4096 at most
				f.remake()
			case http2.SettingInitialWindowSize:
				if value < AnswerSize {
					return out, fmt.Errorf("the other side's streams have a window of %d bytes: an answer has %d", value, AnswerSize)
				}
			}
		}
		return appendFrame(out, http2.FrameSettings, http2.FlagSettingsAck, 0, nil), nil
	case http2.FramePing:
		if of.flags&http2.FlagPingAck == 0 {
			return appendFrame(out, http2.FramePing, http2.FlagPingAck, 0, of.payload), nil
		}
	case http2.FrameWindowUpdate:
		if of.stream == 0 && len(of.payload) == 4 {
			f.window += int64(binary.BigEndian.Uint32(of.payload))
		}
	case http2.FrameRSTStream, http2.FrameGoAway:
		return out, fmt.Errorf("the other side sends %v %x on stream %d", of.kind, of.payload, of.stream)
	case http2.FrameContinuation:
		return out, errors.New("the other side's fields are long: the load knows no CONTINUATION")
	}
	return out, nil
}

// fields is the block of a HEADERS frame.
func (f frame) fields() ([]byte, error) {
	p, pad := f.payload, 0
	if f.flags&http2.FlagHeadersPadded != 0 && len(p) > 0 {
		pad, p = int(p[0]), p[1:]
	}
	if f.flags&http2.FlagHeadersPriority != 0 && len(p) >= 5 {
		p = p[5:]
	}
	if f.flags&http2.FlagHeadersEndHeaders == 0 || pad > len(p) {
		return nil, errors.New("the other side's fields are not whole")
	}
	return p[:len(p)-pad], nil
}

// take works off the frames that have come whole, and lets see have those of requests
// and answers.
func (f *frames) take(in, out []byte, see func(frame) error) (used int, sent []byte, err error) {
	for {
		of, size, ok := next(in[used:])
		if !ok {
			return used, out, nil
		}
		used += size
		switch of.kind {
		case http2.FrameData:
			out = f.received(of, out)
			err = see(of)
		case http2.FrameHeaders:
			err = see(of)
		default:
			out, err = f.connection(of, out)
		}
		if err != nil {
			return used, out, err
		}
	}
}

// received counts the bytes of a DATA frame and credits them now and then.
func (f *frames) received(of frame, out []byte) []byte {
	if f.owed += uint32(len(of.payload)); f.owed > often {
		out = appendCredit(out, f.owed)
		f.owed = 0
	}
	return out
}
