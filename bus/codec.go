package bus

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"
)

// Bodies begin with one byte that says how the rest is written.
const (
	formPlain = 0
	formZstd  = 1
	// Below this, compression costs more than it saves (BUS.md section 4).
	compressAbove = 1 << 10
	// maxBody bounds what a body may decompress to: the largest is a chunk of
	// chunkRaw and one row.
	maxBody = 8 << 20
)

var (
	errBody = errors.New("malformed body")
	// ErrTooLarge means that a message would not fit the bus.
	ErrTooLarge = errors.New("too large for the bus")
)

// EncodeAll and DecodeAll of these are safe for concurrent use; level 1, since
// 3 buys 3 % for half as much CPU again (BUS.md section 1). They are made once:
// the packer holds twice its window for each core that packs at the same time.
var (
	packer   = newPacker()
	unpacker = newUnpacker()
)

// packWindow is half of a snapshot's chunk; the level's own would be 4 MiB, which
// no body fills.
const packWindow = 1 << 20

func newPacker() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(true), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(packWindow))
	if err != nil {
		panic(err) // constant options
	}
	// It makes its inner channel on first use; made inside a synctest bubble,
	// that would bind it to one test.
	e.EncodeAll(nil, nil)
	return e
}

func newUnpacker() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBody), zstd.WithDecoderMaxWindow(maxBody))
	if err != nil {
		panic(err) // constant options
	}
	return d
}

// pack makes a body of raw bytes, compressed where that pays.
func pack(raw []byte) []byte {
	if len(raw) > compressAbove {
		out := packer.EncodeAll(raw, append(make([]byte, 0, len(raw)/4+64), formZstd))
		if len(out) <= len(raw) {
			return out
		}
	}
	out := make([]byte, 1+len(raw))
	out[0] = formPlain
	copy(out[1:], raw)
	return out
}

// unpack undoes pack. The result may share memory with body.
func unpack(body []byte) ([]byte, error) {
	if len(body) == 0 {
		return nil, fmt.Errorf("%w: empty", errBody)
	}
	switch body[0] {
	case formPlain:
		return body[1:], nil
	case formZstd:
		if len(body) == 1 {
			return nil, fmt.Errorf("%w: nothing to decompress", errBody)
		}
		raw, err := unpacker.DecodeAll(body[1:], nil)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBody, err)
		}
		return raw, nil
	}
	return nil, fmt.Errorf("%w: form %d", errBody, body[0])
}

func packMessage(m proto.Message) []byte { return pack(Encode(m)) }

func unpackMessage(body []byte, m proto.Message) error {
	raw, err := unpack(body)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	return nil
}
