// Package show lays out what `weft` knows for a person or a program to read. It
// is pure: values in, text out. Names from the bus are not trusted: nothing in
// them reaches the terminal as a control sequence.
package show

import (
	"cmp"
	"slices"
	"time"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
)

// Status is the state of a mesh's processes, ready to be written.
type Status struct {
	Source    Source    `json:"source"`
	Cluster   string    `json:"cluster"`
	Processes []Process `json:"processes"`
	Skipped   []Skipped `json:"skipped"`
	// SkippedTotal counts also those that are not listed.
	SkippedTotal uint32 `json:"skippedTotal"`
	// Unmeshed counts the pods that an annotation wants to have a proxy and that
	// came up without one.
	Unmeshed uint32 `json:"unmeshed"`
	// History is how the log's past is kept; absent where it is not to be.
	History *History `json:"history,omitempty"`
	// Links to other clusters, of each process that reads one.
	Links []Link   `json:"links,omitempty"`
	Notes []string `json:"notes"`
}

// Source is where the status is from.
type Source string

// The sources.
const (
	Heartbeat Source = "heartbeat" // heartbeat's roll
	Listening Source = "listening" // this command heard it itself
)

// Process is one process of the mesh. Times are in milliseconds.
type Process struct {
	Service  string     `json:"service"`
	Instance string     `json:"instance"`
	Version  string     `json:"version"`
	Host     string     `json:"host"`
	Epoch    uint64     `json:"epoch"`
	Seq      uint64     `json:"seq"`
	State    bus.Health `json:"state"`
	Ready    bool       `json:"ready"`
	Leader   bool       `json:"leader"`
	// LagMs is how long the last change took to reach the process.
	LagMs float64 `json:"lagMs"`
	// StaleMs is how old what the process serves is; 0 while it is live.
	StaleMs int64 `json:"staleMs"`
	// HeardMs is how long ago it was heard.
	HeardMs int64 `json:"heardMs"`
	// AgeMs is how long ago it started.
	AgeMs int64 `json:"ageMs"`
}

// Skipped is one object that the leading watcher could not use.
type Skipped struct {
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// History is how the past of the log is kept (weft history).
type History struct {
	Kept bool `json:"kept"`
	// Problem is why it is not, or what is wrong with it.
	Problem string `json:"problem"`
	// Since is when the oldest message that is kept was said; null when unknown.
	Since *time.Time `json:"since"`
	Bytes uint64     `json:"bytes"`
	// Lost counts the messages that it did not get from this writer.
	Lost uint64 `json:"lost"`
}

// From makes the status of a roll as of now.
func From(roll *busv1.Roll, cluster string, source Source, now time.Time) Status {
	s := Status{Source: source, Cluster: plain.Name(cluster), Processes: []Process{}, Skipped: []Skipped{}, Notes: []string{}}
	for _, e := range roll.GetEntries() {
		p := process(e, now)
		s.Processes = append(s.Processes, p)
		if p.present() {
			s.Links = append(s.Links, linksOf(p, e.GetPresence())...)
		}
		// A standby watcher reads the same objects: listing its findings too
		// would show everything twice.
		if !p.Leader || !p.present() {
			continue
		}
		for _, o := range e.GetPresence().GetSkipped() {
			s.Skipped = append(s.Skipped, Skipped{Object: plain.Name(o.GetObject()), Reason: plain.Name(o.GetReason())})
		}
		if h := e.GetPresence().GetHistory(); h != nil {
			s.History = &History{Kept: h.GetKept(), Problem: plain.Name(h.GetProblem()), Bytes: h.GetBytes(), Lost: h.GetLost()}
			if h.GetSinceNs() != 0 {
				since := time.Unix(0, h.GetSinceNs()).UTC()
				s.History.Since = &since
			}
		}
		s.Unmeshed = max(s.Unmeshed, e.GetPresence().GetUnmeshed()) // of two leaders, each counts all
		s.SkippedTotal += max(e.GetPresence().GetSkippedTotal(), uint32(len(e.GetPresence().GetSkipped())))
	}
	slices.SortFunc(s.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), leadersFirst(a, b), cmp.Compare(a.Instance, b.Instance))
	})
	sortLinks(s.Links)
	slices.SortFunc(s.Skipped, func(a, b Skipped) int { return cmp.Compare(a.Object, b.Object) })
	s.Notes = append(s.Notes, notes(s)...)
	return s
}

func leadersFirst(a, b Process) int {
	switch {
	case a.Leader == b.Leader:
		return 0
	case a.Leader:
		return -1
	default:
		return 1
	}
}

func process(e *busv1.RollEntry, now time.Time) Process {
	p := e.GetPresence()
	heard := now.Sub(time.Unix(0, e.GetLastHeardNs()))
	return Process{
		Service: plain.Name(p.GetService()), Instance: plain.Name(p.GetInstance()), Version: plain.Name(p.GetVersion()), Host: plain.Name(p.GetHost()),
		Epoch: p.GetEpoch(), Seq: p.GetSeq(), Ready: p.GetReady(), Leader: p.GetLeader(),
		State:   bus.HealthOf(p, heard),
		LagMs:   float64(max(0, p.GetLagNs())/1000) / 1000,
		StaleMs: max(0, p.GetAgeNs()/int64(time.Millisecond)),
		HeardMs: max(0, heard.Milliseconds()),
		AgeMs:   age(p, now).Milliseconds(),
	}
}

// present tells whether the process was there a moment ago.
func (p Process) present() bool { return p.State == bus.Live || p.State == bus.Stale }

// age is how long ago a process started; clocks of machines differ, so a start
// in the future is now.
func age(p *busv1.Presence, now time.Time) time.Duration {
	if p.GetStartedAtNs() == 0 {
		return 0
	}
	return max(0, now.Sub(time.Unix(0, p.GetStartedAtNs())))
}

// young is the age below which heartbeat has not heard everybody yet.
const young = 6 * time.Second

// notes says what the table means where that is not plain.
func notes(s Status) []string {
	var leaders, stale, watchers int
	var fresh bool
	for _, p := range s.Processes {
		if !p.present() {
			continue
		}
		if p.Leader {
			leaders++
		}
		if p.Service == "watcher" {
			watchers++
		}
		if p.Service == "heartbeat" && time.Duration(p.AgeMs)*time.Millisecond < young {
			fresh = true
		}
		if p.State == bus.Stale {
			stale++
		}
	}
	var all []string
	if s.Source == Listening && len(s.Processes) > 0 {
		all = append(all, "heard here, without a heartbeat: what fell silent before is not listed.")
	}
	if s.Source == Heartbeat && fresh {
		all = append(all, "heartbeat has just started: processes may be missing for some seconds.")
	}
	if len(s.Processes) > 0 && leaders == 0 {
		why := "no watcher is there"
		if watchers > 0 {
			why = "no watcher leads"
		}
		all = append(all, why+": changes do not reach the mesh; proxies and front-ends keep what they have.")
	}
	if leaders > 1 {
		all = append(all, "more than one watcher says that it leads: an old leader has not noticed yet; readers obey the higher epoch.")
	}
	if stale > 0 {
		all = append(all, "stale: the process serves what it last read, and has not heard the writer since.")
	}
	return all
}
