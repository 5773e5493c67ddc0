// Package chronicle keeps what happened while a mesh was broken on purpose, and
// judges it afterwards: what the source did, and what each client was told. It
// knows neither processes nor protocols, only sets of names.
//
// Its one condition: a name that the source takes back never comes again. Then
// every set that a client sees tells how old the state is that it was taken from.
package chronicle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// What is a kind of event.
type What int

// The kinds of events.
const (
	// Wrote: the source is about to make Items the set of Topic.
	Wrote What = iota + 1
	// Opened: Who asks Life for Topic, and holds nothing yet.
	Opened
	// Told: after one message Who holds Items of Topic.
	Told
	// Absent: Who was told that there is no Topic.
	Absent
	// Ended: the stream of Who is over; what it was told last is what it goes by.
	Ended
	// Fault is anything that was done to the mesh, in Note.
	Fault
	// Settled: faults had ended and everybody had agreed, or should have.
	Settled
)

// Event is one thing that happened.
type Event struct {
	At   time.Duration // since the beginning
	What What
	Who  string
	// Life is the one life of the replica that Who asks: a process from its start
	// to its end.
	Life  string
	Topic string
	Items []string // in order
	Note  string
}

// String is a line of a transcript.
func (e Event) String() string {
	at := fmt.Sprintf("%9.3f ", e.At.Seconds())
	switch e.What {
	case Wrote:
		return at + "source: " + e.Topic + " is " + list(e.Items)
	case Opened:
		return at + e.Who + " asks " + e.Life + " for " + e.Topic
	case Told:
		return at + e.Who + " holds " + e.Topic + " " + list(e.Items)
	case Absent:
		return at + e.Who + " is told that there is no " + e.Topic
	case Ended:
		return at + e.Who + " lost its stream: " + e.Note
	case Settled:
		return at + "-- settled --"
	}
	return at + "-- " + e.Note
}

func list(items []string) string { return "{" + strings.Join(items, " ") + "}" }

// Log gathers events. Any goroutine may use it.
type Log struct {
	began time.Time

	mu     sync.Mutex
	events []Event
}

// New begins a log now.
func New() *Log { return &Log{began: time.Now()} }

// Add notes an event, now.
func (l *Log) Add(e Event) {
	e.Items = slices.Sorted(slices.Values(e.Items))
	l.mu.Lock()
	defer l.mu.Unlock()
	e.At = time.Since(l.began)
	l.events = append(l.events, e)
}

// Events are those so far, in order.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Transcript is what led to a fault: what was done to the mesh, and everything
// about one topic, at most the last lines.
func Transcript(events []Event, topic string, lines int) string {
	var out []string
	for _, e := range events {
		if e.What == Fault || e.What == Settled || e.Topic == topic {
			out = append(out, e.String())
		}
	}
	return strings.Join(out[max(0, len(out)-lines):], "\n")
}
