package scale_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/e2e/bench/scale"
)

// TestRollout: 10,000 and 100,000 subscriptions, half of them to endpoints and
// half to profiles, while 1,000 pods are replaced.
func TestRollout(t *testing.T) {
	s := bench(t, "rollout")
	for _, most := range []int{10_000, 100_000} {
		t.Run(fmt.Sprint(most), func(t *testing.T) { rollout(t, s, scaled(most)) })
	}
}

func rollout(t *testing.T, s *sheet, streams int) {
	t.Helper()
	m := start(t, min(*pods, max(1500, streams*3/4)))
	p, addr := m.destination()
	before := rss(t, p)
	swarm := newSwarm(t, m.size.Services())
	ask := streamsOf(m, streams, true)
	used, began := cpu(t, p), time.Now()
	swarm.spread(t, addr, max(1, streams/20), ask)
	swarm.answered(t, streams)
	name := fmt.Sprintf("%d subscriptions: ", streams)
	s.took(name+"all answered", time.Since(began), 0)
	s.say(name+"processor time of a start", float64((cpu(t, p)-used).Microseconds())/float64(streams), "us", 80)
	s.say(name+"RSS of each", (rss(t, p)-before)*1000/1.024/float64(streams), "KiB", 16)

	const pods, together = 1000, 10
	used, told := cpu(t, p), swarm.msgs.Load()
	for service := range pods/scale.PodsPerService + 1 {
		m.append(scale.Template(service, 1))
	}
	for from := 0; from < pods; from += together {
		var steps [4][]bus.Change
		for pod := from; pod < from+together; pod++ {
			steps[0] = append(steps[0], scale.Workload(pod, 1, false), scale.Endpoint(pod, 1, false))
			steps[1] = append(steps[1], scale.Workload(pod, 1, true), scale.Endpoint(pod, 1, true))
			steps[2] = append(steps[2], scale.Leaving(pod, 0)...)
			for _, old := range []bus.Change{scale.Workload(pod, 0, true), scale.Endpoint(pod, 0, true)} {
				steps[3] = append(steps[3], bus.Change{Table: old.Table, Key: old.Key})
			}
		}
		for _, changes := range steps {
			m.append(changes...)
		}
	}
	// What all are told last shows that everything before it has been.
	last := time.Now()
	marks := make(map[int]int64)
	for service := range pods / 15 {
		marks[service] = swarm.groups[service].msgs.Load()
		m.append(scale.Endpoint(service*15, 1, false))
	}
	eventually(t, "the last change is told", func() bool {
		for service := range marks {
			if swarm.groups[service].last.Load() < last.UnixNano() {
				return false
			}
		}
		return true
	})
	s.took(name+"1,000 pods replaced: last change to its last stream", time.Duration(swarm.last.Load()-last.UnixNano()), 0)
	concerned := 0
	for _, q := range ask {
		if !q.profile && q.group < pods/15+1 {
			concerned++
		}
	}
	msgs := float64(swarm.msgs.Load() - told)
	s.say(name+"messages for each stream that it concerns", msgs/float64(max(1, concerned)), "", 0)
	s.say(name+"processor time for it all", (cpu(t, p) - used).Seconds(), "s", 0)
	// Each of fifteen pods comes and goes: a stream that were told of each step
	// would have 31 messages, and a slow one has fewer.
	s.most(name+"messages, of what one for each step would be", msgs/float64(max(1, 32*concerned)), "", 1)
	if n := swarm.ended.Load(); n > 0 {
		t.Errorf("%d streams ended", n)
	}
}
