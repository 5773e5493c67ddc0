package chronicle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Rules say what is special about some topics.
type Rules struct {
	// Denied are names that nobody may ever be told of: who is let in although
	// nothing allows it.
	Denied []string
	// Always are names that the source never takes back; whoever was told
	// anything of their topic must have been told of them.
	Always map[string][]string
	// Calm are topics that never change: one message a stream, whatever happens.
	Calm []string
}

// Wrong is one thing that must not have happened.
type Wrong struct {
	Verdict string // never open, invented, no ghosts, forward only, unknown is not empty, least messages, agree
	Topic   string
	Text    string
}

// String names the verdict, then the case.
func (w Wrong) String() string { return w.Verdict + ": " + w.Text }

// Judge says what was wrong in a run, in the order in which it happened.
func Judge(events []Event, rules Rules) []Wrong {
	j := &judge{rules: rules, topics: topicsOf(events), clients: map[string]*client{}, lows: map[string]int{}}
	for i := range events {
		j.event(&events[i])
	}
	for _, name := range slices.Sorted(maps.Keys(j.clients)) {
		j.end(name, j.clients[name])
	}
	return j.wrong
}

// topic is what the source did to one set.
type topic struct {
	versions []Event
	// born and died are the versions in which a name came and went.
	born, died map[string]int
}

func topicsOf(events []Event) map[string]*topic {
	out := map[string]*topic{}
	for _, e := range events {
		if e.What != Wrote {
			continue
		}
		t := out[e.Topic]
		if t == nil {
			t = &topic{born: map[string]int{}, died: map[string]int{}}
			out[e.Topic] = t
		}
		version := len(t.versions) + 1
		for _, name := range e.Items {
			if _, known := t.born[name]; !known {
				t.born[name] = version
			}
		}
		if len(t.versions) > 0 {
			for _, name := range t.versions[len(t.versions)-1].Items {
				if !slices.Contains(e.Items, name) {
					t.died[name] = version
				}
			}
		}
		t.versions = append(t.versions, e)
	}
	return out
}

// at is the number of the newest version at a time.
func (t *topic) at(e *Event) int {
	n, _ := slices.BinarySearchFunc(t.versions, e.At, func(v Event, at time.Duration) int { return cmp.Or(cmp.Compare(v.At, at), -1) })
	return n
}

// client is what one client holds, and how it came to that.
type client struct {
	topic, life string
	open        bool
	holds       []string
	told        int // messages of this stream
	first       int // the version that its first message was of, at least
}

type judge struct {
	rules   Rules
	topics  map[string]*topic
	clients map[string]*client
	// lows are the newest versions that each life of a replica has shown, by life,
	// client and topic.
	lows    map[string]int
	settled bool
	wrong   []Wrong
}

func (j *judge) fault(verdict string, e *Event, format string, args ...any) {
	j.wrong = append(j.wrong, Wrong{verdict, e.Topic, fmt.Sprintf("%.3f s, %s of %s: ", e.At.Seconds(), e.Who, cmp.Or(e.Life, "?")) + fmt.Sprintf(format, args...)})
}

func (j *judge) event(e *Event) {
	switch e.What {
	case Opened:
		c := j.clients[e.Who]
		if c == nil {
			c = &client{}
			j.clients[e.Who] = c
		}
		*c = client{topic: e.Topic, life: e.Life, open: true}
	case Told:
		if c := j.clients[e.Who]; c != nil && c.open {
			e.Life, e.Topic = c.life, c.topic
			j.told(c, e)
		}
	case Absent:
		if t := j.topics[e.Topic]; t != nil && t.at(e) > 0 {
			j.fault("unknown is not empty", e, "told that there is none")
		}
	case Ended:
		if c := j.clients[e.Who]; c != nil {
			j.count(c, e)
			c.open = false
		}
	case Settled:
		j.settled = true
	case Wrote, Fault:
	}
}

// told judges one message.
func (j *judge) told(c *client, e *Event) {
	t := j.topics[c.topic]
	if t == nil {
		t = &topic{}
	}
	c.told++
	key := c.life + " " + e.Who + " " + c.topic
	low, shown := j.lows[key], 0
	now := t.at(e)
	for _, name := range e.Items {
		if slices.Contains(j.rules.Denied, name) {
			j.fault("never open", e, "%s is let in", name)
			continue
		}
		born, known := t.born[name]
		if !known || born > now {
			j.fault("invented", e, "%s was in no state of the source", name)
			continue
		}
		died := t.died[name]
		held := slices.Contains(c.holds, name)
		if died != 0 && died <= low && !held {
			j.fault("forward only", e, "%s is told, which was gone in version %d; version %d was shown before", name, died, low)
		}
		if j.settled && died != 0 {
			j.fault("no ghosts", e, "%s is told, which was gone in version %d", name, died)
		}
		if !held {
			shown = max(shown, born)
		}
	}
	for _, name := range c.holds {
		if !slices.Contains(e.Items, name) {
			shown = max(shown, t.died[name])
		}
	}
	for _, name := range j.rules.Always[c.topic] {
		if !slices.Contains(e.Items, name) {
			j.fault("unknown is not empty", e, "told %s without %s, which was there all the time", list(e.Items), name)
		}
	}
	if c.told > 1 && slices.Contains(j.rules.Calm, c.topic) {
		j.fault("least messages", e, "message %d of a stream about what never changes", c.told)
	}
	j.lows[key] = max(low, shown)
	if c.told == 1 {
		c.first = shown
	}
	c.holds = e.Items
}

// perVersion is how many messages one change may cost a client: an endpoint
// that comes and its pod that comes later are two, and one that goes is another.
const perVersion = 3

// count judges how many messages a stream took.
func (j *judge) count(c *client, e *Event) {
	t := j.topics[c.topic]
	if !c.open || t == nil || c.told == 0 {
		return
	}
	if most := perVersion * (1 + t.at(e) - c.first); c.told > most {
		e.Topic, e.Life = c.topic, c.life
		j.fault("least messages", e, "%d in a stream that saw at most %d changes", c.told, t.at(e)-c.first)
	}
}

// end judges what a client goes by when all is over.
func (j *judge) end(name string, c *client) {
	t := j.topics[c.topic]
	if t == nil || len(t.versions) == 0 {
		return
	}
	last := t.versions[len(t.versions)-1]
	e := &Event{At: last.At, Who: name, Topic: c.topic, Life: c.life}
	switch {
	case !c.open:
		j.fault("agree", e, "has no stream in the end")
	case c.told == 0 && len(last.Items) > 0: // of what is there and empty, nothing need be said
		j.fault("agree", e, "was told nothing in its last stream")
	case !slices.Equal(c.holds, last.Items):
		j.fault("agree", e, "holds %s, the source has %s", list(c.holds), list(last.Items))
	}
}

// Agreed says whether every client holds what the source has, and if not, who
// doesn't, in words.
func Agreed(events []Event) (string, bool) {
	j := &judge{topics: topicsOf(events), clients: map[string]*client{}, lows: map[string]int{}}
	for i := range events {
		if e := events[i]; e.What != Settled {
			j.event(&e)
		}
	}
	j.wrong = nil
	for _, name := range slices.Sorted(maps.Keys(j.clients)) {
		j.end(name, j.clients[name])
	}
	if len(j.wrong) == 0 {
		return "", true
	}
	return j.wrong[0].Text, false
}
