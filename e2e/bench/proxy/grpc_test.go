package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// grpcConn is one HTTP/2 connection with gRPC calls on it. Like client it does
// little else than what the wire demands.
type grpcConn struct {
	conn   net.Conn
	out    *bufio.Writer
	frames *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
	target string
	next   uint32
	owed   uint32 // of the connection's window, in bytes
}

// message is what every call says, with gRPC's prefix.
var message = append(binary.BigEndian.AppendUint32([]byte{0}, 100), bytes.Repeat([]byte("q"), 100)...)

func dialGRPC(to hop) (*grpcConn, error) {
	conn, err := net.DialTimeout("tcp", to.addr, patience)
	if err != nil {
		return nil, fmt.Errorf("connecting to a proxy: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	c := &grpcConn{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), target: to.target, next: 1}
	c.enc = hpack.NewEncoder(&c.block)
	c.frames = http2.NewFramer(c.out, bufio.NewReaderSize(conn, 64<<10))
	c.frames.SetReuseFrames()
	c.frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := c.out.WriteString(http2.ClientPreface); err != nil {
		return nil, err
	}
	return c, c.frames.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0})
}

// ask begins a call.
func (c *grpcConn) ask() error {
	c.block.Reset()
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/shop.Books/List"},
		{":authority", c.target},
		{"content-type", "application/grpc"},
		{"user-agent", "bench"},
		{"te", "trailers"},
	} {
		if err := c.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return err
		}
	}
	if err := c.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: c.block.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	err := c.frames.WriteData(c.next, true, message)
	c.next += 2
	return err
}

// read works one frame off, and reports whether it was the last of an answer.
func (c *grpcConn) read() (over bool, err error) {
	frame, err := c.frames.ReadFrame()
	if err != nil {
		return false, fmt.Errorf("reading an answer: %w", err)
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return false, c.frames.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return false, c.frames.WritePing(true, f.Data)
		}
	case *http2.DataFrame:
		if c.owed += f.Length; c.owed > 16<<10 {
			err = c.frames.WriteWindowUpdate(0, c.owed)
			c.owed = 0
		}
		return f.StreamEnded(), err
	case *http2.MetaHeadersFrame:
		for _, h := range f.Fields {
			if h.Name == ":status" && h.Value != "200" || h.Name == "grpc-status" && h.Value != "0" {
				return false, fmt.Errorf("the answer has %s %s", h.Name, h.Value)
			}
		}
		return f.StreamEnded(), nil
	case *http2.RSTStreamFrame, *http2.GoAwayFrame:
		return false, fmt.Errorf("the answer is %v", frame)
	}
	return false, nil
}

// do makes one call.
func (c *grpcConn) do() error {
	_, err := c.many(1, time.Time{})
	return err
}

// many keeps so many calls under way until it is time to end, and waits for the
// last answers. It returns how many there were.
func (c *grpcConn) many(atOnce int, until time.Time) (n int, err error) {
	open := 0
	for ; open < atOnce; open++ {
		if err := c.ask(); err != nil {
			return n, err
		}
	}
	for open > 0 {
		if err := c.out.Flush(); err != nil {
			return n, fmt.Errorf("sending calls: %w", err)
		}
		over, err := c.read()
		if err != nil {
			return n, err
		}
		if !over {
			continue
		}
		n++
		if time.Now().Before(until) {
			err = c.ask()
		} else {
			open--
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
