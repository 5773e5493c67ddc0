package link

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// complain tells of each unreadable link once, until its reason changes.
func (s *Set) complain(ctx context.Context, bad map[string]error) {
	s.bad.Set(float64(len(bad)))
	for name, err := range bad {
		s.tell(ctx, name, err)
	}
	for name := range s.told {
		if _, still := bad[name]; !still {
			delete(s.told, name)
		}
	}
}

// tell is called by Run alone.
func (s *Set) tell(ctx context.Context, name string, err error) {
	if s.told[name] == err.Error() {
		return
	}
	s.told[name] = err.Error()
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
