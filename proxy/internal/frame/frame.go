// Package frame reads and writes the frames of HTTP/2 (RFC 9113 §4, §6): bytes
// in, values out. It checks what can be told from one frame alone; what depends
// on the state of a stream or connection is package h2's.
package frame

import (
	"encoding/binary"
	"fmt"
)

// HeaderLen is the length of a frame's head, in bytes.
const HeaderLen = 9

// Preface is what a client begins with (RFC 9113 §3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// Limits of SETTINGS_MAX_FRAME_SIZE and of windows.
const (
	MinMaxSize = 1 << 14
	MaxMaxSize = 1<<24 - 1
	MaxWindow  = 1<<31 - 1
	// FirstWindow is every window's size before anyone has said another, in bytes.
	FirstWindow = 65535
)

// A Type is the type of a frame; unknown ones are to be ignored.
type Type uint8

// The types.
const (
	Data Type = iota
	Headers
	Priority
	Reset
	Settings
	Push
	Ping
	GoAway
	Window
	Continuation
)

// A Flag is one bit of a frame's head.
type Flag uint8

// The flags. The first means Ack for Settings and Ping.
const (
	EndStream  Flag = 0x1
	Ack        Flag = 0x1
	EndHeaders Flag = 0x4
	Padded     Flag = 0x8
	Weighted   Flag = 0x20 // HEADERS carry a priority
)

// A Head is the head of a frame.
type Head struct {
	Length uint32
	Type   Type
	Flags  Flag
	Stream uint32
}

// Has reports whether a flag is set.
func (h Head) Has(f Flag) bool { return h.Flags&f != 0 }

// Parse reads a head; b has at least HeaderLen bytes.
func Parse(b []byte) Head {
	return Head{
		Length: uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]), Type: Type(b[3]), Flags: Flag(b[4]),
		Stream: binary.BigEndian.Uint32(b[5:9]) & MaxWindow,
	}
}

// A Code says why a stream or a connection ended (RFC 9113 §7).
type Code uint32

// The codes.
const (
	NoError Code = iota
	ProtocolError
	InternalError
	FlowControlError
	SettingsTimeout
	StreamClosed
	SizeError
	RefusedStream
	Cancel
	CompressionError
	ConnectError
	EnhanceYourCalm
	InadequateSecurity
	HTTP11Required
)

var codes = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

// String is the code's name in the RFC.
func (c Code) String() string {
	if int(c) < len(codes) {
		return codes[c]
	}
	return fmt.Sprintf("code %d", uint32(c))
}

// A ConnError ends the connection.
type ConnError struct {
	Code Code
	Why  string
}

func (e *ConnError) Error() string { return "HTTP/2 connection: " + e.Code.String() + ": " + e.Why }

// A StreamError ends one stream.
type StreamError struct {
	Stream uint32
	Code   Code
	Why    string
}

func (e *StreamError) Error() string { return "HTTP/2 stream: " + e.Code.String() + ": " + e.Why }

func broken(code Code, why string) error { return &ConnError{code, why} }

// unpad takes the padding off (RFC 9113 §6.1).
func unpad(h Head, p []byte) ([]byte, error) {
	if !h.Has(Padded) {
		return p, nil
	}
	if len(p) == 0 {
		return nil, broken(SizeError, "a padded frame without a padding's length")
	}
	pad := int(p[0])
	if p = p[1:]; pad > len(p) {
		return nil, broken(ProtocolError, "more padding than frame")
	}
	return p[:len(p)-pad], nil
}

// DataOf is the content of a DATA frame.
func DataOf(h Head, p []byte) ([]byte, error) {
	if h.Stream == 0 {
		return nil, broken(ProtocolError, "DATA without a stream")
	}
	return unpad(h, p)
}

// HeadersOf is the part of the block in a HEADERS frame.
func HeadersOf(h Head, p []byte) ([]byte, error) {
	if h.Stream == 0 {
		return nil, broken(ProtocolError, "HEADERS without a stream")
	}
	p, err := unpad(h, p)
	if err != nil || !h.Has(Weighted) {
		return p, err
	}
	if len(p) < 5 {
		return nil, broken(SizeError, "HEADERS too short for their priority")
	}
	if on := binary.BigEndian.Uint32(p) & MaxWindow; on == h.Stream {
		return p[5:], &StreamError{h.Stream, ProtocolError, "a stream that depends on itself"}
	}
	return p[5:], nil
}

// CheckPriority checks a PRIORITY frame, which is of no use otherwise.
func CheckPriority(h Head, p []byte) error {
	switch {
	case h.Stream == 0:
		return broken(ProtocolError, "PRIORITY without a stream")
	case len(p) != 5:
		return &StreamError{h.Stream, SizeError, "PRIORITY that is not 5 bytes"}
	case binary.BigEndian.Uint32(p)&MaxWindow == h.Stream:
		return &StreamError{h.Stream, ProtocolError, "a stream that depends on itself"}
	}
	return nil
}

// ResetOf is the code of a RST_STREAM frame.
func ResetOf(h Head, p []byte) (Code, error) {
	switch {
	case h.Stream == 0:
		return 0, broken(ProtocolError, "RST_STREAM without a stream")
	case len(p) != 4:
		return 0, broken(SizeError, "RST_STREAM that is not 4 bytes")
	}
	return Code(binary.BigEndian.Uint32(p)), nil
}

// PingOf is the content of a PING frame.
func PingOf(h Head, p []byte) (content [8]byte, err error) {
	switch {
	case h.Stream != 0:
		return content, broken(ProtocolError, "PING on a stream")
	case len(p) != 8:
		return content, broken(SizeError, "PING that is not 8 bytes")
	}
	return [8]byte(p), nil
}

// GoAwayOf is the last stream that the peer has looked at, and why it leaves.
func GoAwayOf(h Head, p []byte) (last uint32, code Code, err error) {
	switch {
	case h.Stream != 0:
		return 0, 0, broken(ProtocolError, "GOAWAY on a stream")
	case len(p) < 8:
		return 0, 0, broken(SizeError, "GOAWAY of fewer than 8 bytes")
	}
	return binary.BigEndian.Uint32(p) & MaxWindow, Code(binary.BigEndian.Uint32(p[4:])), nil
}

// WindowOf is the increment of a WINDOW_UPDATE frame.
func WindowOf(h Head, p []byte) (uint32, error) {
	if len(p) != 4 {
		return 0, broken(SizeError, "WINDOW_UPDATE that is not 4 bytes")
	}
	n := binary.BigEndian.Uint32(p) & MaxWindow
	switch {
	case n > 0:
		return n, nil
	case h.Stream == 0:
		return 0, broken(ProtocolError, "WINDOW_UPDATE of nothing")
	}
	return 0, &StreamError{h.Stream, ProtocolError, "WINDOW_UPDATE of nothing"}
}
