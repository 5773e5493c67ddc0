package frame

import "encoding/binary"

// A Setting is the number of a setting (RFC 9113 §6.5.2, RFC 8441 §3).
type Setting uint16

// The settings. Unknown ones are to be ignored.
const (
	TableSize     Setting = 1
	EnablePush    Setting = 2
	MaxStreams    Setting = 3
	FirstSize     Setting = 4 // of streams' windows
	MaxSize       Setting = 5 // of frames
	MaxList       Setting = 6 // of fields
	EnableConnect Setting = 8 // extended CONNECT
)

// SettingsOf calls f for each setting of a frame, after having checked it.
func SettingsOf(h Head, p []byte, f func(Setting, uint32) error) error {
	switch {
	case h.Stream != 0:
		return broken(ProtocolError, "SETTINGS on a stream")
	case h.Has(Ack) && len(p) != 0:
		return broken(SizeError, "an acknowledgement of SETTINGS with content")
	case len(p)%6 != 0:
		return broken(SizeError, "SETTINGS that are not a multiple of 6 bytes")
	}
	for ; len(p) > 0; p = p[6:] {
		s, v := Setting(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])
		if err := check(s, v); err != nil {
			return err
		}
		if err := f(s, v); err != nil {
			return err
		}
	}
	return nil
}

func check(s Setting, v uint32) error {
	switch {
	case (s == EnablePush || s == EnableConnect) && v > 1:
		return broken(ProtocolError, "a switch that is neither on nor off")
	case s == FirstSize && v > MaxWindow:
		return broken(FlowControlError, "a window larger than there can be")
	case s == MaxSize && (v < MinMaxSize || v > MaxMaxSize):
		return broken(ProtocolError, "a frame size that there cannot be")
	}
	return nil
}

// AppendHead appends the head of a frame.
func AppendHead(dst []byte, h Head) []byte {
	return append(dst, byte(h.Length>>16), byte(h.Length>>8), byte(h.Length), byte(h.Type), byte(h.Flags),
		byte(h.Stream>>24), byte(h.Stream>>16), byte(h.Stream>>8), byte(h.Stream))
}

// AppendSettings appends settings, each a pair of number and value.
func AppendSettings(dst []byte, pairs ...[2]uint32) []byte {
	dst = AppendHead(dst, Head{Length: uint32(6 * len(pairs)), Type: Settings})
	for _, p := range pairs {
		dst = binary.BigEndian.AppendUint16(dst, uint16(p[0]))
		dst = binary.BigEndian.AppendUint32(dst, p[1])
	}
	return dst
}

// AppendSettingsAck appends the acknowledgement of SETTINGS.
func AppendSettingsAck(dst []byte) []byte { return AppendHead(dst, Head{Type: Settings, Flags: Ack}) }

// AppendPing appends a PING, or with Ack the answer to one.
func AppendPing(dst []byte, flags Flag, content [8]byte) []byte {
	return append(AppendHead(dst, Head{Length: 8, Type: Ping, Flags: flags}), content[:]...)
}

// AppendReset appends a RST_STREAM.
func AppendReset(dst []byte, stream uint32, code Code) []byte {
	dst = AppendHead(dst, Head{Length: 4, Type: Reset, Stream: stream})
	return binary.BigEndian.AppendUint32(dst, uint32(code))
}

// AppendWindow appends a WINDOW_UPDATE; stream 0 is the connection's.
func AppendWindow(dst []byte, stream, increment uint32) []byte {
	dst = AppendHead(dst, Head{Length: 4, Type: Window, Stream: stream})
	return binary.BigEndian.AppendUint32(dst, increment)
}

// AppendGoAway appends a GOAWAY.
func AppendGoAway(dst []byte, last uint32, code Code, debug string) []byte {
	dst = AppendHead(dst, Head{Length: uint32(8 + len(debug)), Type: GoAway})
	dst = binary.BigEndian.AppendUint32(dst, last)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	return append(dst, debug...)
}

// AppendBlock appends a block of fields as HEADERS, and as CONTINUATION what is
// more than size bytes.
func AppendBlock(dst []byte, stream uint32, block []byte, end bool, size int) []byte {
	h := Head{Type: Headers, Stream: stream}
	if end {
		h.Flags = EndStream
	}
	for {
		part := block[:min(len(block), size)]
		if block = block[len(part):]; len(block) == 0 {
			h.Flags |= EndHeaders
		}
		h.Length = uint32(len(part))
		dst = append(AppendHead(dst, h), part...)
		if len(block) == 0 {
			return dst
		}
		h.Type, h.Flags = Continuation, 0
	}
}
