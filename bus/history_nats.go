package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// askMany implements asker: JetStream sends each message that was asked for as
// an answer of its own.
func (b *natsBus) askMany(ctx context.Context, subject string, data []byte, each func(Message) (bool, error)) error {
	inbox := b.conn.NewInbox()
	sub, err := b.conn.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("asking %s: %w", subject, disconnection(err))
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection is gone otherwise, and with it the subscription
	if err := b.conn.PublishRequest(subject, inbox, data); err != nil {
		return fmt.Errorf("asking %s: %w", subject, disconnection(err))
	}
	for {
		m, err := next(ctx, sub)
		if err != nil {
			return fmt.Errorf("asking %s: %w", subject, disconnection(err))
		}
		done, err := each(Message{Subject: m.Subject, Header: headerOf(m), Data: m.Data})
		if done || err != nil {
			return err
		}
	}
}

func next(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pageWait)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

// The headers that JetStream adds to a message that was asked for.
const (
	headerStatus  = "Status"
	headerWords   = "Description"
	headerSeqOf   = "Nats-Sequence"
	headerStored  = "Nats-Time-Stamp"
	headerPending = "Nats-Num-Pending"
)

// direct is what JetStream says with one message.
type direct struct {
	seq     uint64
	stored  time.Time
	pending uint64 // how many more there are that were asked for
	end     bool   // no message: there are no more
}

// answerOf reads one answer of the stream.
func answerOf(m Message) (direct, error) {
	var d direct
	switch status := m.Header[headerStatus]; status {
	case "":
	case "204", "404": // the end of a batch; nothing found
		d.end = true
		d.pending, _ = strconv.ParseUint(m.Header[headerPending], 10, 64) // none means none
		return d, nil
	case "503":
		return d, ErrNoPeers
	default:
		return d, fmt.Errorf("JetStream: %.20q %.200q: %w", status, m.Header[headerWords], errRefused)
	}
	var err error
	if d.seq, err = strconv.ParseUint(m.Header[headerSeqOf], 10, 64); err != nil {
		return d, fmt.Errorf("%w: %s is %.20q", errHeader, headerSeqOf, m.Header[headerSeqOf])
	}
	if d.stored, err = time.Parse(time.RFC3339Nano, m.Header[headerStored]); err != nil {
		return d, fmt.Errorf("%w: %s is %.40q", errHeader, headerStored, m.Header[headerStored])
	}
	return d, nil
}

var errRefused = errors.New("refused")
