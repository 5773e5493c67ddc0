package scale_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// A hundred thousand streams of gRPC's own client cost the machine more than
// the server that is measured. So this is a client of frames: it asks, counts
// messages, and notes when they came.

// question is one stream to open.
type question struct {
	profile bool
	path    string
	token   string
	// group is whose event this stream waits for.
	group int
}

// swarm is many connections with many streams each.
type swarm struct {
	groups []group
	first  atomic.Int64 // streams that have had a message
	msgs   atomic.Int64
	bytes  atomic.Int64
	ended  atomic.Int64
	last   atomic.Int64 // when the newest message came, Unix nanoseconds
	conns  []*client
	wg     sync.WaitGroup
}

// group counts the messages of streams that a change concerns together.
type group struct {
	msgs, last atomic.Int64
}

func newSwarm(t *testing.T, groups int) *swarm {
	t.Helper()
	s := &swarm{groups: make([]group, groups)}
	t.Cleanup(func() {
		for _, c := range s.conns {
			_ = c.conn.Close()
		}
		s.wg.Wait()
	})
	return s
}

// client is one connection.
type client struct {
	conn    net.Conn
	framer  *http2.Framer
	swarm   *swarm
	streams map[uint32]*heard
	taken   uint32 // bytes since the server was last told to send more
}

// connWindow is what hyper lets a connection have under way. As hyper, this client
// says that it took something once that is half of it: a frame in answer to each
// message would cost both sides as much as the message.
const connWindow = 5 << 20

type heard struct {
	group int
	msgs  int
	part  []byte // of a message whose rest has not come yet
}

// dial opens a connection with its streams. One that never reads keeps HTTP/2's
// small windows and leaves everything in the socket.
func (s *swarm) dial(t *testing.T, addr string, reads bool, ask []question) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c := &client{conn: conn, swarm: s, streams: make(map[uint32]*heard, len(ask))}
	out.WriteString(http2.ClientPreface)
	w := http2.NewFramer(&out, nil)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if reads {
		must(w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}))
		must(w.WriteWindowUpdate(0, connWindow-(64<<10-1)))
	} else {
		must(w.WriteSettings())
	}
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for i, q := range ask {
		id := uint32(2*i + 1)
		c.streams[id] = &heard{group: q.group}
		call := "/io.linkerd.proxy.destination.Destination/Get"
		if q.profile {
			call += "Profile"
		}
		head.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"},
			{Name: ":scheme", Value: "http"},
			{Name: ":path", Value: call},
			{Name: ":authority", Value: addr},
			{Name: "content-type", Value: "application/grpc"},
			{Name: "te", Value: "trailers"},
		} {
			must(enc.WriteField(f))
		}
		body, err := proto.Marshal(&pb.GetDestination{Scheme: "k8s", Path: q.path, ContextToken: q.token})
		must(err)
		must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head.Bytes(), EndHeaders: true}))
		must(w.WriteData(id, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)))
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		t.Fatal(err)
	}
	s.conns = append(s.conns, c)
	if reads {
		// Without a buffer it would make two calls of the system for each frame.
		c.framer = http2.NewFramer(conn, bufio.NewReaderSize(conn, 4<<10))
		s.wg.Go(c.read)
	}
}

// read takes everything until the connection ends.
func (c *client) read() {
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() && c.framer.WriteSettingsAck() != nil {
				return
			}
		case *http2.PingFrame:
			if !f.IsAck() && c.framer.WritePing(true, f.Data) != nil {
				return
			}
		case *http2.DataFrame:
			c.data(f)
			if c.taken += f.Length; c.taken >= connWindow/2 {
				if c.framer.WriteWindowUpdate(0, c.taken) != nil {
					return
				}
				c.taken = 0
			}
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				c.swarm.ended.Add(1)
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			c.swarm.ended.Add(1)
		}
	}
}

func (c *client) data(f *http2.DataFrame) {
	h := c.streams[f.StreamID]
	if h == nil {
		return
	}
	b := f.Data()
	if len(h.part) > 0 {
		b = append(h.part, b...)
	}
	for len(b) >= 5 {
		n := 5 + int(binary.BigEndian.Uint32(b[1:]))
		if len(b) < n {
			break
		}
		b = b[n:]
		h.msgs++
		now := time.Now().UnixNano()
		s := c.swarm
		s.bytes.Add(int64(n))
		s.last.Store(now)
		g := &s.groups[h.group]
		g.last.Store(now)
		g.msgs.Add(1)
		s.msgs.Add(1)
		if h.msgs == 1 {
			s.first.Add(1)
		}
	}
	h.part = append(h.part[:0:0], b...)
}

// spread opens questions over as many connections, in order.
func (s *swarm) spread(t *testing.T, addr string, conns int, ask []question) {
	t.Helper()
	each := (len(ask) + conns - 1) / conns
	for len(ask) > 0 {
		n := min(each, len(ask))
		s.dial(t, addr, true, ask[:n])
		ask = ask[n:]
	}
}

// answered waits until every stream has had its first message.
func (s *swarm) answered(t *testing.T, streams int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d streams answered", streams), func() bool { return s.first.Load() == int64(streams) })
}

// quiet waits until nothing has come for a while.
func (s *swarm) quiet(t *testing.T) {
	t.Helper()
	eventually(t, "nothing comes any more", func() bool {
		return time.Since(time.Unix(0, s.last.Load())) > time.Second
	})
}
