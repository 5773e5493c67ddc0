package link

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/obs"
)

// Settled is nil once every link that was there at the start has been read, or
// answers have stopped waiting for it: a replica that knows less than the others
// should not be asked before.
func (s *Set) Settled() error {
	if s.cfg.Dir == "" || time.Since(s.began) >= s.cfg.grace() {
		return nil
	}
	found, _, err := scan(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var missing []string
	for name := range found {
		if c := s.m[name]; c == nil || c.now == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	return fmt.Errorf("linked clusters have not been read yet: %s", strings.Join(missing, ", "))
}

// note keeps how a copy's session is, to be told by States.
func (s *Set) note(c *copied, session Session, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session != nil {
		c.session = session
	}
	c.failed = failed
}

// States tells how every linked cluster stands, by name: for presence, so that
// `weft status` can say it.
func (s *Set) States() []*busv1.LinkState {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*busv1.LinkState, 0, len(s.m))
	for name, c := range s.m {
		out = append(out, c.state(name, s.told[name]))
	}
	// A description that could never be read links nothing, but is meant to.
	for name, why := range s.told {
		if s.m[name] == nil && name != "" {
			out = append(out, &busv1.LinkState{Cluster: name, Problem: why})
		}
	}
	slices.SortFunc(out, func(a, b *busv1.LinkState) int { return strings.Compare(a.GetCluster(), b.GetCluster()) })
	return out[:min(len(out), maxLinks)]
}

// state is that of the copy that answers, else of the one that will.
func (c *cluster) state(name, unreadable string) *busv1.LinkState {
	out := &busv1.LinkState{Cluster: name, Known: c.now != nil, Problem: unreadable}
	of := c.now
	if of == nil {
		of = c.next
	}
	if of == nil {
		return out
	}
	if of.session != nil {
		st := of.session.Status()
		out.Connected = of.failed == nil && of.session.Connected()
		out.Epoch, out.Seq, out.AgeNs = st.Epoch, st.Seq, int64(st.Age)
		if !st.HeardAt.IsZero() {
			out.HeardAtNs = st.HeardAt.UnixNano()
		}
	}
	switch {
	case out.GetProblem() != "":
	case of.failed != nil:
		out.Problem = of.failed.Error()
	case c.now != nil && c.next != nil:
		out.Problem = "its settings have changed; the old connection answers until all is read over the new one"
	}
	return out
}

// complain tells of each unreadable link once, until its reason changes.
func (s *Set) complain(ctx context.Context, bad map[string]error) {
	s.bad.Set(float64(len(bad)))
	for name, err := range bad {
		s.tell(ctx, name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.told {
		if _, still := bad[name]; !still {
			delete(s.told, name)
		}
	}
}

// tell is called by Run alone.
func (s *Set) tell(ctx context.Context, name string, err error) {
	s.mu.Lock()
	known := s.told[name] == err.Error()
	s.told[name] = err.Error()
	s.mu.Unlock()
	if known {
		return
	}
	slog.WarnContext(ctx, "link can't be read; what was read of it stays", obs.Cluster(name), obs.Error(err))
}

var linksDesc = prometheus.NewDesc("weft_destination_links", "Linked clusters, by whether their state has been read.", []string{"state"}, nil)

// storeDesc is Linkerd's metric of the same meaning.
var storeDesc = prometheus.NewDesc("cluster_store_size", "Linked clusters.", nil, nil)

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) {
	ch <- linksDesc
	ch <- storeDesc
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	var known, unknown float64
	for _, c := range s.m {
		if c.now != nil {
			known++
		} else {
			unknown++
		}
	}
	s.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(linksDesc, prometheus.GaugeValue, known, "known")
	ch <- prometheus.MustNewConstMetric(linksDesc, prometheus.GaugeValue, unknown, "unknown")
	ch <- prometheus.MustNewConstMetric(storeDesc, prometheus.GaugeValue, known+unknown)
}
