package judge

import (
	"fmt"
	"slices"
	"strings"
)

// Server is what a NATS server's monitor says of it.
type Server struct {
	Pod   string // namespace/name
	ID    string
	Peers []string // ids of the servers that it has routes to
	Err   error    // why it could not be asked
}

// Quorum judges whether more than half of the servers that there should be are
// there and all of them hear each other. Without it one half of the mesh would
// not hear the writer.
func Quorum(servers []Server, want int, ns string) error {
	var f faults
	next := fmt.Sprintf("kubectl -n %s get pods -l linkerd.io/control-plane-component=nats; kubectl -n %s logs weft-nats-0", ns, ns)
	up := make(map[string]string)
	for _, s := range servers {
		if s.Err == nil {
			up[s.ID] = s.Pod
		}
	}
	if want < 1 {
		f.add(named("StatefulSet", ns, "weft-nats"), "spec.replicas", fmt.Sprintf("is %d: there is no bus", want))
	} else if need := want/2 + 1; len(up) < need {
		f.add(named("StatefulSet", ns, "weft-nats"), "spec.replicas", fmt.Sprintf("is %d, but only %d answer and %d are needed", want, len(up), need))
	}
	for _, s := range servers {
		if s.Err != nil {
			f.add("NATS server in pod "+s.Pod, "/routez", "does not answer: "+oneLine(s.Err))
			continue
		}
		for _, id := range sorted(up) {
			if id != s.ID && !slices.Contains(s.Peers, id) {
				f.add("NATS server in pod "+s.Pod, "/routez", "has no route to the server in pod "+up[id])
			}
		}
	}
	return f.err(next)
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }

// Process is what a process of the mesh says of the log in its metrics.
type Process struct {
	Pod       string // namespace/name
	Service   string
	Err       error // why it could not be asked
	Connected bool
	Synced    bool
	Stale     bool
	Age       float64 // seconds since the writer was heard, while stale
	Epoch     uint64
	Seq       uint64
	Leader    bool
	Skipped   int      // objects that the watcher could not use
	History   *History // nil where the log's past is not to be kept
}

// History is how the watcher that leads says the log's past is kept.
type History struct {
	Kept bool
	Lost uint64 // messages that are missing in it
}

// Leads judges whether exactly one watcher leads.
func Leads(watchers []Process, ns string) error {
	var f faults
	var leaders []string
	for _, w := range watchers {
		if w.Err != nil {
			f.add("watcher in pod "+w.Pod, "/metrics", "does not answer: "+oneLine(w.Err))
		}
		if w.Leader {
			leaders = append(leaders, w.Pod)
		}
	}
	if len(leaders) == 1 {
		return nil // one that does not answer is told by the readiness of its pod
	}
	if len(leaders) == 0 {
		f.add(named("Deployment", ns, "weft-watcher"), "weft_watcher_leader", fmt.Sprintf("is 1 in none of its %d pods: changes do not reach the mesh", len(watchers)))
	} else {
		f.add(named("Deployment", ns, "weft-watcher"), "weft_watcher_leader", "is 1 in several pods: "+strings.Join(leaders, ", "))
	}
	return f.err(fmt.Sprintf("kubectl -n %s get lease weft-watcher -o yaml; kubectl -n %s logs deploy/weft-watcher", ns, ns))
}

// InStep judges whether each replica has read at least as far as the leader had
// when it was asked, which must have been before the replicas were.
func InStep(leader Process, replicas []Process, ns string) error {
	var f faults
	for _, p := range replicas {
		object := p.Service + " in pod " + p.Pod
		switch {
		case p.Err != nil:
			f.add(object, "/metrics", "does not answer: "+oneLine(p.Err))
		case !p.Connected:
			f.add(object, "weft_bus_connected", "is 0: it has no connection to NATS")
		case !p.Synced:
			f.add(object, "weft_bus_synced", "is 0: its copy of the log is not complete")
		case p.Epoch < leader.Epoch, p.Epoch == leader.Epoch && p.Seq < leader.Seq:
			f.add(object, "weft_bus_seq", fmt.Sprintf("is %d in epoch %d; the writer was at %d in epoch %d", p.Seq, p.Epoch, leader.Seq, leader.Epoch))
		}
	}
	return f.err(fmt.Sprintf("weft status; kubectl -n %s logs POD", ns))
}

// Heard judges whether each replica hears the writer.
func Heard(replicas []Process, ns string) error {
	var f faults
	for _, p := range replicas {
		if p.Err == nil && p.Stale {
			f.add(p.Service+" in pod "+p.Pod, "weft_bus_stale", fmt.Sprintf("is 1: the writer was last heard %.0f s ago; it serves what it last read", p.Age))
		}
	}
	return f.err(fmt.Sprintf("see whether a watcher leads and NATS is whole (above); kubectl -n %s logs POD", ns))
}

// NothingSkipped judges whether the leading watcher could use every object.
func NothingSkipped(leader Process) error {
	if leader.Skipped == 0 {
		return nil
	}
	return fault("watcher in pod "+leader.Pod, "weft_watcher_skipped_objects", fmt.Sprintf("is %d: objects that make no sense have no effect", leader.Skipped),
		"weft status lists them with the reasons")
}

// HistoryKept judges whether the log's past is written down as it should be.
// Nothing but `weft history` needs it.
func HistoryKept(leader Process, ns string) error {
	if leader.History.Kept {
		return nil
	}
	return fault("watcher in pod "+leader.Pod, "weft_bus_history_up", fmt.Sprintf("is 0, and %d messages of the log are missing in the history: weft history will tell a gap", leader.History.Lost),
		fmt.Sprintf("weft status tells why; kubectl -n %s logs weft-history-0", ns))
}
