// Package h2 is HTTP/2 (RFC 9113) for a proxy: one connection, in either role.
//
// One goroutine reads (Run) and works every frame off before it takes the next;
// it never waits for anything but the socket. Frames of all streams are appended
// to one buffer under the connection's lock, and a goroutine that lives as long
// as there is something in it yields once, so that everybody who is ready adds
// his, and writes all of it. There is no goroutine for a stream: who has one to
// spare waits on the stream's own condition (Stream.Response, Next, Write).
//
// Credit is honest: what a peer may send is raised by what has been passed on.
package h2

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weftmesh/weft/proxy/internal/frame"
	"github.com/weftmesh/weft/proxy/internal/hpack"
	"github.com/weftmesh/weft/proxy/internal/wire"
)

// Config is how a connection behaves. The zero value works.
type Config struct {
	// StreamWindow and ConnWindow are what the peer may send ahead, in bytes; 0
	// means 65535 and 1 MiB.
	StreamWindow, ConnWindow uint32
	MaxFrame                 uint32 // of the peer's frames; 0 means 16384
	MaxStreams               uint32 // at a time, of a server; 0 means 200
	MaxList                  uint32 // of a head or trailer, as RFC 9113 §6.5.2 counts; 0 means 256 KiB
	// KeepaliveInterval is how long nothing is heard before a PING asks whether
	// the peer is there; 0 means never. It has KeepaliveTimeout to answer.
	KeepaliveInterval, KeepaliveTimeout time.Duration
	// MaxAge, give or take a tenth, and Idle end a connection gracefully; 0 means never.
	MaxAge, Idle time.Duration
	// Handle begins a request on a server. It is called by the reading goroutine
	// and must not wait; Stream.Done must be called when it has been dealt with.
	Handle func(*Stream)
}

func (c Config) filled() Config {
	or := func(v *uint32, otherwise uint32) {
		if *v == 0 {
			*v = otherwise
		}
	}
	or(&c.StreamWindow, frame.FirstWindow)
	or(&c.ConnWindow, 1<<20)
	or(&c.MaxFrame, frame.MinMaxSize)
	or(&c.MaxStreams, 200)
	or(&c.MaxList, 256<<10)
	c.StreamWindow = min(c.StreamWindow, frame.MaxWindow)
	c.ConnWindow = min(max(c.ConnWindow, frame.FirstWindow), frame.MaxWindow)
	c.MaxFrame = min(max(c.MaxFrame, frame.MinMaxSize), frame.MaxMaxSize)
	return c
}

// A Conn is one connection.
type Conn struct {
	cfg    Config
	server bool
	nc     net.Conn
	in     wire.Reader
	heads  heads // of Run: the block that is being read

	decoding sync.Mutex
	dec      hpack.Decoder // of Run, and of soothe

	mu      sync.Mutex
	enc     hpack.Encoder
	block   []byte // scratch of the encoder
	streams map[uint32]*Stream
	latest  *Stream   // of streams, the last that a frame was about: mostly the next one's
	blocked []*Stream // wait for the connection's window or for room to write
	queue   []chan struct{}
	handled int // requests whose handler has not called Done

	out      []byte
	queued   uint64 // bytes that were ever put into out
	started  uint64 // of those, what a write has begun for
	wrote    int    // how much the last write had
	flushing bool
	flusher  func() // flush, bound once: a method in a go statement is an allocation
	control  int    // frames that answer the peer, in out

	sendWindow int64
	recvWindow int64 // what the peer may still send
	owed       int64 // what of that has been passed on and not been told

	peer     settings
	told     bool // the peer has sent its first SETTINGS
	next     uint32
	highest  uint32 // of the peer's streams
	limits   bucket // of resets
	lastSent uint32 // of our GOAWAY
	leaving  bool   // we have said so
	left     bool   // the peer has said so
	parting  bool   // a server has no more to say; the peer may not have it yet
	lingers  bool   // for that
	err      error  // why the connection has ended
	ended    chan struct{}

	heard  atomic.Int64 // when something was read, as nanoseconds of clock
	resets *[256]uint32 // streams that we have reset, by number
	age    *time.Timer
	idle   *time.Timer
	alive  *time.Timer
	calm   *time.Timer // runs on while there are streams
	busy   time.Time   // when the last stream ended
	most   int         // streams at a time since the calm
}

// settings are the peer's.
type settings struct {
	maxFrame   int
	window     int64
	maxStreams uint32
	maxList    uint32
}

// Errors of connections.
var (
	ErrClosed = errors.New("the HTTP/2 connection is closed")
	// ErrSpent means that the connection takes no new stream; those it has go on.
	ErrSpent = errors.New("the HTTP/2 connection takes no more requests")
)

// highWater is how much may wait to be written before streams wait too, in bytes.
const highWater = 256 << 10

// Server serves the connection, whose preface has not been read yet, when Run is
// called.
func Server(nc net.Conn, cfg Config) *Conn { return newConn(nc, cfg, true) }

// Client speaks to a server. Requests may be opened at once, but are answered
// only while Run runs.
func Client(nc net.Conn, cfg Config) *Conn {
	return newConn(nc, cfg, false)
}

func newConn(nc net.Conn, cfg Config, server bool) *Conn {
	cfg = cfg.filled()
	c := &Conn{
		cfg: cfg, server: server, nc: nc, streams: map[uint32]*Stream{},
		sendWindow: frame.FirstWindow, recvWindow: int64(cfg.ConnWindow),
		peer:  settings{maxFrame: frame.MinMaxSize, window: frame.FirstWindow, maxStreams: 100},
		ended: make(chan struct{}), lastSent: frame.MaxWindow,
	}
	if server {
		c.peer.maxStreams = 0
	} else {
		c.next = 1
	}
	c.in.Reset(nc)
	c.flusher = c.flush
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hello()
	return c
}

// hello is what a connection begins with.
func (c *Conn) hello() {
	pairs := [][2]uint32{
		{uint32(frame.FirstSize), c.cfg.StreamWindow},
		{uint32(frame.MaxSize), c.cfg.MaxFrame},
		{uint32(frame.MaxList), c.cfg.MaxList},
	}
	if c.server {
		pairs = append(pairs, [2]uint32{uint32(frame.MaxStreams), c.cfg.MaxStreams})
	} else {
		c.put(append(c.begin(len(frame.Preface)), frame.Preface...))
		pairs = append(pairs, [2]uint32{uint32(frame.EnablePush), 0})
	}
	c.put(frame.AppendSettings(c.begin(64), pairs...))
	if more := c.cfg.ConnWindow - frame.FirstWindow; more > 0 {
		c.put(frame.AppendWindow(c.begin(16), 0, more))
	}
}

// Run reads until the connection ends and returns why: io.EOF if the peer went,
// ErrClosed if we did. All streams have ended then.
func (c *Conn) Run() error {
	c.timers()
	err := c.read()
	c.mu.Lock()
	c.farewell(err)
	parting := c.parting
	c.mu.Unlock()
	c.fail(err)
	if parting {
		_ = c.nc.Close() // the peer has ended it before us
	}
	c.in.Release()
	return err
}

// farewell says why we hang up, if it was the peer's fault.
func (c *Conn) farewell(err error) {
	if ours, ok := errors.AsType[*frame.ConnError](err); ok && c.err == nil {
		c.put(frame.AppendGoAway(c.begin(64), c.highest, ours.Code, ours.Why))
	}
}

// fail ends everything. Only the first error counts.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if errors.Is(err, io.EOF) && len(c.streams) > 0 {
		err = io.ErrUnexpectedEOF
	}
	c.err = err
	for _, t := range []*time.Timer{c.age, c.idle, c.alive, c.calm} {
		if t != nil {
			t.Stop()
		}
	}
	c.idle = nil
	for _, s := range c.streams {
		s.end(c.unsent(s, err))
	}
	c.wakeQueue()
	close(c.ended)
	waiting, parting := len(c.out) > 0 || c.flushing, c.parting
	c.mu.Unlock()
	switch {
	case !waiting:
		c.hangUp()
	case parting:
		_ = c.nc.SetWriteDeadline(time.Now().Add(slowest))
	default:
		// The last words have a moment to go out; the flusher closes the connection.
		_ = c.nc.SetDeadline(time.Now().Add(time.Second))
	}
}

// Ended is closed when the connection has ended.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Err is why the connection has ended, nil if it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Usable reports whether a new request can be opened, now or after some wait.
func (c *Conn) Usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usable()
}

func (c *Conn) usable() bool {
	return c.err == nil && !c.left && !c.leaving && c.next <= frame.MaxWindow
}

// InFlight is the number of streams that are open.
func (c *Conn) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
}

// Close ends the connection at once.
func (c *Conn) Close() {
	c.fail(ErrClosed)
	_ = c.nc.Close()
}

// Shutdown ends the connection gracefully: the peer is told, streams that it has
// opened by then are served, and the last one's end is the connection's. It does
// not wait.
func (c *Conn) Shutdown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shutdown()
}

func (c *Conn) shutdown() {
	if c.leaving || c.err != nil {
		return
	}
	c.leaving = true
	if !c.server {
		c.put(frame.AppendGoAway(c.begin(32), 0, frame.NoError, ""))
		c.wakeQueue()
		c.settle()
		return
	}
	// First without a limit: streams may be on their way (RFC 9113 §6.8). The
	// answer to the PING has overtaken none of them.
	c.put(frame.AppendGoAway(c.begin(32), frame.MaxWindow, frame.NoError, ""))
	c.put(frame.AppendPing(c.begin(32), 0, goodbye))
	if len(c.streams) == 0 {
		// A peer that is idle need not be waited for long.
		time.AfterFunc(time.Second, c.last)
		return
	}
	time.AfterFunc(5*time.Second, c.last)
}

// goodbye marks the PING after a first GOAWAY; watchful one of the keepalive.
var (
	goodbye  = [8]byte{'g', 'o', 'o', 'd', 'b', 'y', 'e'}
	watchful = [8]byte{'w', 'a', 't', 'c', 'h'}
)

// last says which stream is the last.
func (c *Conn) last() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.lastSent != frame.MaxWindow {
		return
	}
	c.lastSent = c.highest
	c.put(frame.AppendGoAway(c.begin(32), c.highest, frame.NoError, ""))
	c.settle()
}

// settle closes the connection that has been left and has nothing to do. What it has
// yet to say goes out first, however slow the peer is: streams that have ended are
// among it, and the flusher asks again. It is called with the lock held.
func (c *Conn) settle() {
	if len(c.streams) > 0 || c.err != nil || c.flushing {
		return
	}
	if c.leaving && (!c.server || c.lastSent != frame.MaxWindow) || c.left {
		c.part()
		go c.fail(ErrClosed)
	}
}
