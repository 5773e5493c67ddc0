package show

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
)

// Link is how one process stands to a linked cluster's log.
type Link struct {
	Cluster  string    `json:"cluster"`
	Service  string    `json:"service"`
	Instance string    `json:"instance"`
	State    LinkState `json:"state"`
	Epoch    uint64    `json:"epoch"`
	Seq      uint64    `json:"seq"`
	// StaleMs is how old what is served of that cluster is; 0 while it is live.
	StaleMs int64 `json:"staleMs"`
	// Problem says why it can't be read as described, if so.
	Problem string `json:"problem,omitempty"`
}

// LinkState is a link's state in a word.
type LinkState string

// The states, the best first.
const (
	LinkLive  LinkState = "live"
	LinkStale LinkState = "stale" // what was read before is served
	LinkCut   LinkState = "cut"   // there is no connection; what was read before is served
	// LinkUnknown: nothing was ever read completely, which is not the same as an
	// empty cluster.
	LinkUnknown LinkState = "unknown"
)

var linkRank = map[LinkState]int{LinkLive: 0, LinkStale: 1, LinkCut: 2, LinkUnknown: 3}

// linksOf reads the links of a process that is there.
func linksOf(p Process, presence *busv1.Presence) (out []Link) {
	for _, l := range presence.GetLinks() {
		one := Link{
			Cluster: plain.Name(l.GetCluster()), Service: p.Service, Instance: p.Instance, Epoch: l.GetEpoch(), Seq: l.GetSeq(),
			StaleMs: max(0, l.GetAgeNs()/int64(time.Millisecond)), Problem: plain.Name(l.GetProblem()), State: LinkLive,
		}
		switch {
		case !l.GetKnown():
			one.State = LinkUnknown
		case !l.GetConnected():
			one.State = LinkCut
		case one.StaleMs > 0:
			one.State = LinkStale
		}
		out = append(out, one)
	}
	return out
}

func sortLinks(links []Link) {
	slices.SortFunc(links, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Instance, b.Instance))
	})
}

// linkTable is a line for each linked cluster and service that reads it: how many
// processes do, and how the worst of them stands.
func linkTable(links []Link) string {
	if len(links) == 0 {
		return ""
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LINKED CLUSTER\tREAD BY\tEPOCH/SEQ\tSTATE")
	for from := 0; from < len(links); {
		to, worst, live := from, links[from], 0
		for ; to < len(links) && links[to].Cluster == links[from].Cluster && links[to].Service == links[from].Service; to++ {
			if links[to].State == LinkLive {
				live++
			}
			if linkRank[links[to].State] > linkRank[worst.State] || worst.Problem == "" && links[to].Problem != "" {
				worst = links[to]
			}
		}
		by := worst.Service
		if n := to - from; n > 1 {
			by += fmt.Sprintf(" (%d of %d live)", live, n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", dash(worst.Cluster), by, linkPosition(worst), linkText(worst))
		from = to
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

func linkPosition(l Link) string {
	if l.Epoch == 0 {
		return "-"
	}
	return strconv.FormatUint(l.Epoch, 10) + "/" + strconv.FormatUint(l.Seq, 10)
}

func linkText(l Link) string {
	text := string(l.State)
	switch l.State {
	case LinkStale:
		text = "stale for " + span(l.StaleMs)
	case LinkCut:
		text = "cut off; what was read before is served"
		if l.StaleMs > 0 {
			text = "cut off for " + span(l.StaleMs) + "; what was read before is served"
		}
	case LinkUnknown:
		text = "unknown: never read completely"
	}
	if l.Problem != "" {
		text += ": " + l.Problem
	}
	return text
}
