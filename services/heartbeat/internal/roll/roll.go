// Package roll keeps the list of processes that were heard lately. It is pure:
// the time comes with each call. One goroutine at a time may use a Roll; the
// presences it holds and hands out never change.
package roll

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Limits bound a roll. Zero fields mean the defaults.
type Limits struct {
	Processes int           // most entries; 0 means 4096
	Bytes     int           // most bytes of presences; 0 means 16 MiB
	Left      time.Duration // after which one that took its leave is forgotten; 0 means 1 min
	Forget    time.Duration // after which any other is; 0 means 10 min
}

// The defaults; what left stays for as long as a person may wonder about it.
const (
	defaultProcesses = 4096
	defaultBytes     = 16 << 20
	defaultLeft      = time.Minute
	defaultForget    = 10 * time.Minute
)

// Bounds on one presence. Names are at most what DNS allows; a presence that
// is larger than maxPresence keeps its counts and loses its details.
const (
	maxName     = 253
	maxPresence = 16 << 10
)

func (l Limits) filled() Limits {
	return Limits{
		Processes: cmp.Or(l.Processes, defaultProcesses),
		Bytes:     cmp.Or(l.Bytes, defaultBytes),
		Left:      cmp.Or(l.Left, defaultLeft),
		Forget:    cmp.Or(l.Forget, defaultForget),
	}
}

// Roll is the list. Make it with New.
type Roll struct {
	limits Limits
	byName map[name]entry
	bytes  int
}

// name tells processes apart; the instance is unique for each run.
type name struct{ service, instance string }

type entry struct {
	presence *busv1.Presence
	size     int
	heard    time.Time
}

// New makes an empty roll.
func New(limits Limits) *Roll {
	return &Roll{limits: limits.filled(), byName: make(map[name]entry)}
}

// Verdict is what became of a presence.
type Verdict string

// The verdicts; each is also the value of a metric's label.
const (
	Taken     Verdict = "taken"
	Malformed Verdict = "malformed" // without a name, or with an impossible one
	Late      Verdict = "late"      // older than what the process said last
	Crowded   Verdict = "crowded"   // taken, and the process unheard for longest was forgotten
)

// Hear takes p in as said at now. The roll keeps p: the caller must not change it.
func (r *Roll) Hear(p *busv1.Presence, now time.Time) Verdict {
	if !wellFormed(p) {
		return Malformed
	}
	n := name{p.GetService(), p.GetInstance()}
	old, known := r.byName[n]
	if known && p.GetSentAtNs() < old.presence.GetSentAtNs() {
		return Late // overtaken on the way, perhaps by its own farewell
	}
	if known {
		r.drop(n)
	}
	e := r.fit(p)
	e.heard = now
	verdict := Taken
	for len(r.byName) > 0 && (len(r.byName) >= r.limits.Processes || r.bytes+e.size > r.limits.Bytes) {
		r.drop(r.longestUnheard(now))
		verdict = Crowded
	}
	r.byName[n] = e
	r.bytes += e.size
	return verdict
}

// wellFormed tells whether p can be shown at all.
func wellFormed(p *busv1.Presence) bool {
	if p.GetService() == "" || p.GetInstance() == "" {
		return false
	}
	for _, s := range []string{p.GetService(), p.GetInstance(), p.GetVersion(), p.GetCluster(), p.GetHost()} {
		if len(s) > maxName {
			return false
		}
	}
	return true
}

// fit measures p, without its details if it is too large with them.
func (r *Roll) fit(p *busv1.Presence) entry {
	size := proto.Size(p)
	if size > min(maxPresence, r.limits.Bytes) {
		slim, _ := proto.Clone(p).(*busv1.Presence)
		slim.SkippedTotal = max(p.GetSkippedTotal(), uint32(len(p.GetSkipped())))
		slim.Skipped = nil
		slim.ProtoReflect().SetUnknown(nil)
		p, size = slim, proto.Size(slim)
	}
	return entry{presence: p, size: size}
}

func (r *Roll) drop(n name) {
	r.bytes -= r.byName[n].size
	delete(r.byName, n)
}

// longestUnheard is the entry that is missed least: one that left, else the
// one that has been silent for longest.
func (r *Roll) longestUnheard(now time.Time) name {
	var least name
	var rank int
	var heard time.Time
	first := true
	for n, e := range r.byName {
		k := order(e.presence, now.Sub(e.heard))
		if first || k > rank || k == rank && e.heard.Before(heard) {
			least, rank, heard, first = n, k, e.heard, false
		}
	}
	return least
}

// Forget drops the processes whose time is over.
func (r *Roll) Forget(now time.Time) {
	for n, e := range r.byName {
		limit := r.limits.Forget
		if e.presence.GetLeaving() {
			limit = r.limits.Left
		}
		if now.Sub(e.heard) >= limit {
			r.drop(n)
		}
	}
}

// Entries lists the roll as of now: live processes first, since a listener may
// have to cut the end off, and within a state by service and instance.
func (r *Roll) Entries(now time.Time) *busv1.Roll {
	type placed struct {
		rank int
		*busv1.RollEntry
	}
	list := make([]placed, 0, len(r.byName))
	for _, e := range r.byName {
		list = append(list, placed{
			rank:      order(e.presence, now.Sub(e.heard)),
			RollEntry: &busv1.RollEntry{Presence: e.presence, LastHeardNs: e.heard.UnixNano()},
		})
	}
	slices.SortFunc(list, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank),
			cmp.Compare(a.GetPresence().GetService(), b.GetPresence().GetService()),
			cmp.Compare(a.GetPresence().GetInstance(), b.GetPresence().GetInstance()))
	})
	out := &busv1.Roll{Entries: make([]*busv1.RollEntry, len(list))}
	for i, e := range list {
		out.Entries[i] = e.RollEntry
	}
	return out
}
