package bus

import (
	"context"
	"errors"
)

// Transport moves messages between the processes of one cluster. It may lose,
// repeat and reorder what it carries; the log does not rely on it. Drivers:
// NATS (Connect) and memory (package bustest).
type Transport interface {
	// Cluster is the word in the middle of every subject.
	Cluster() string
	// Peer is this connection's own name, unique and one subject token.
	Peer() string
	// Publish sends one message to every subscriber, or fails at once when there
	// is no connection: nothing is kept for later.
	Publish(subject string, header Header, data []byte) error
	// Subscribe calls deliver for each message, one at a time, in the order of
	// arrival. deliver must not block.
	Subscribe(subject string, deliver func(Message)) (Subscription, error)
	// Serve answers requests; of the members of one group, one gets each
	// request. answer is called one at a time, may keep the request and respond
	// later from another goroutine.
	Serve(subject, group string, answer func(Request)) (Subscription, error)
	// Request asks whoever serves subject and waits for the answer. With nobody
	// there it fails with ErrNoPeers at once.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Connected says whether a message sent now would have somewhere to go.
	Connected() bool
	// Watch calls heard for each event of the connection until stop is called.
	// heard must not block.
	Watch(heard func(Event)) (stop func())
	// Reconnect drops the connection and makes a new one, to get away from a
	// server that is silent without being gone.
	Reconnect()
	// Run holds the connection until ctx ends, then closes it.
	Run(ctx context.Context) error
	// Close ends the connection; it may be called more than once.
	Close()
}

// Header is the small map in front of a message.
type Header map[string]string

// Message is what a subscriber gets. It must not be changed.
type Message struct {
	Subject string
	Header  Header
	Data    []byte
}

// Request is one question to a server of a subject.
type Request struct {
	Data []byte
	// Respond sends the answer; it may be called once, from any goroutine.
	Respond func(data []byte) error
}

// Subscription ends with Stop, after which deliver is not called any more but
// for a call that has begun.
type Subscription interface{ Stop() }

// Event is something that happened to the connection.
type Event int

const (
	// Disconnected says that nothing is sent or heard until Connected.
	Disconnected Event = iota + 1
	// Connected for the first time or again: messages may have been missed.
	Connected
	// Slow says that messages were dropped because a subscription did not keep up.
	Slow
)

var (
	// ErrNoPeers means that nobody serves the subject now.
	ErrNoPeers = errors.New("nobody answers")
	// ErrDisconnected means that there is no connection to send on.
	ErrDisconnected = errors.New("not connected to the bus")
)

// MaxPayload is the most that one message may carry: below the NATS default of
// 1 MiB, which counts headers.
const MaxPayload = 1<<20 - 16<<10

// subjects are the names of one cluster's log on the bus.
type subjects struct{ log, ask, peer, presence, roll, status string }

func subjectsOf(t Transport) subjects {
	base := "weft." + t.Cluster()
	return subjects{
		log:      base + ".log",
		ask:      base + ".ask",
		peer:     base + ".peer.",
		presence: base + ".presence",
		roll:     base + ".roll",
		status:   base + ".status",
	}
}

const (
	askGroup  = "peers"
	rollGroup = "roll"
)
