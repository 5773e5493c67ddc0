package scale_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/e2e/bench/scale"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// streamsOf asks for Services in turn, a half of the streams for endpoints and
// the other for profiles if both is set, from nodes of every zone.
func streamsOf(m *mesh, streams int, both bool) []question {
	out := make([]question, streams)
	for i := range out {
		service := i % m.size.Services()
		out[i] = question{
			profile: both && i/m.size.Services()%2 == 1, group: service,
			path:  m.size.Authority(service),
			token: fmt.Sprintf(`{"ns":"bench","nodeName":"node-%d"}`, (i*7)%(m.size.Pods/30+1)),
		}
	}
	return out
}

// scaled is a number for the full size, in proportion.
func scaled(n int) int { return max(1, n*min(*pods, fullSize)/fullSize) }

// TestStreams: what 100,000 streams cost, how soon 20 changes a second reach
// their ten subscribers, what one change for 10,000 subscribers takes, and what
// a client that never reads does to the others.
func TestStreams(t *testing.T) {
	s := bench(t, "streams")
	m := start(t, *pods)
	p, addr := m.destination()
	heapNow(t, p)
	quiet, before := atRest(t, p), rss(t, p)
	streams, conns := scaled(100_000), scaled(5000)
	ask := streamsOf(m, streams, false)
	swarm := newSwarm(t, m.size.Services())
	profiled := profileCPU(t, p, "start.cpu", max(2, streams/20_000))
	used, began := cpu(t, p), time.Now()
	swarm.spread(t, addr, conns, ask)
	swarm.answered(t, streams)
	name := fmt.Sprintf("%d streams over %d connections: ", streams, conns)
	s.took(name+"all answered", time.Since(began), 0)
	each := func(total time.Duration) float64 { return float64(total.Microseconds()) / float64(streams) }
	s.say(name+"processor time of a start, answer included", each(cpu(t, p)-used), "us", 80)
	profiled()
	settled := atRest(t, p)
	s.atFullSize(name+"RSS of each", (rss(t, p)-before)*1000/1.024/float64(streams), "KiB", 16)
	s.say(name+"live heap of each", (settled-quiet)*1000/1.024/float64(streams), "KiB", 0)
	// Of a stream that needs more than 4 KiB once it is twice as much for good.
	s.atFullSize(name+"stacks of each", stacksNow(t, p)*1000/1.024/float64(streams), "KiB", 6)
	s.atFullSize(name+"RSS of all", rss(t, p)-before, "MB", 1700)

	events := changes(m, swarm, s, name+"20 changes/s, each with 10 subscribers", streams/m.size.Services())
	s.say("source event to last stream, p50", quantile(events, .5), "ms", 3)
	s.say("source event to last stream, p99", quantile(events, .99), "ms", 15)
	if swarm.ended.Load() > 0 {
		t.Errorf("%d streams ended", swarm.ended.Load())
	}
	neverReading(t, s, m, p, addr, swarm, streams/m.size.Services())
}

// changes makes 20 changes a second, each of another Service, and gives the time
// until the last of its subscribers had it, in milliseconds.
func changes(m *mesh, swarm *swarm, s *sheet, name string, subscribers int) []float64 {
	s.t.Helper()
	const rate, seconds = 20, 10 // below full size one second
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	type event struct {
		group int
		at    time.Time
	}
	var events []event
	sent := swarm.msgs.Load()
	for n := range min(scaledAtLeast(rate*seconds, rate), m.size.Services()/2) {
		<-tick.C
		service := n * 2 // its neighbours are asked for on the same connections
		g := &swarm.groups[service]
		g.msgs.Store(0)
		at := time.Now()
		m.append(scale.Endpoint(service*scale.PodsPerService, 0, m.flip(service)))
		events = append(events, event{service, at})
	}
	want := int64(len(events) * subscribers)
	eventually(s.t, "changes are told", func() bool { return swarm.msgs.Load()-sent >= want })
	out := make([]float64, len(events))
	for i, e := range events {
		out[i] = float64(swarm.groups[e.group].last.Load()-e.at.UnixNano()) / 1e6
	}
	slices.Sort(out)
	s.exactly(name+": messages", int(swarm.msgs.Load()-sent), int(want), "")
	return out
}

func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// neverReading adds ten clients with twenty streams each that take nothing of
// 3,000 changes, and measures the others beside them.
func neverReading(t *testing.T, s *sheet, m *mesh, p *proc.Process, addr string, swarm *swarm, subscribers int) {
	t.Helper()
	const clients, streams = 10, 20
	before := quantile(changes(m, swarm, s, "without the one that never reads", subscribers), .99)
	heap := atRest(t, p)
	loud := m.size.Services() - 1
	deaf := newSwarm(t, 1)
	for range clients {
		ask := make([]question, streams)
		for i := range ask {
			ask[i] = question{path: m.size.Authority(loud)}
		}
		deaf.dial(t, addr, false, ask)
	}
	eventually(t, "they are let in", func() bool { return subscribersNow(t, p) >= float64(len(swarm.conns)) })
	for n := range scaledAtLeast(3000, 300) {
		m.append(storm(loud, n)...)
	}
	swarm.quiet(t)
	beside := quantile(changes(m, swarm, s, "beside ten that never read", subscribers), .99)
	s.say("others' p99 without the ten", before, "ms", 0)
	s.say("others' p99 beside the ten", beside, "ms", 0)
	grown := max(0, heapNow(t, p)-heap)
	// gRPC queues 64 KiB a stream (BUS.md section 5.4), and each has its own step.
	s.most("live heap that each of the ten costs", grown*1e3/clients, "kB", 2000)
}

func scaledAtLeast(n, least int) int { return max(least, scaled(n)) }

// storm changes every endpoint of a Service.
func storm(service, n int) []bus.Change {
	var out []bus.Change
	for i := range scale.PodsPerService {
		out = append(out, scale.Endpoint(service*scale.PodsPerService+i, 0, (n+i)%2 == 0))
	}
	return out
}

// TestOneService: one Service with 10,000 subscribers changes.
func TestOneService(t *testing.T) {
	s := bench(t, "one-service")
	m := start(t, min(*pods, 15_000))
	p, addr := m.destination()
	streams, conns := scaled(10_000), scaled(500)
	ask := make([]question, streams)
	for i := range ask {
		ask[i] = question{path: m.size.Authority(0), token: fmt.Sprintf(`{"nodeName":"node-%d"}`, i%3)}
	}
	swarm := newSwarm(t, 1)
	swarm.spread(t, addr, conns, ask)
	swarm.answered(t, streams)
	var took []float64
	profiled := profileCPU(t, p, "one-service.cpu", 2)
	used, told := cpu(t, p), swarm.msgs.Load()
	for n := range 8 {
		before, at := swarm.msgs.Load(), time.Now()
		m.append(scale.Endpoint(0, 0, n%2 == 1))
		eventually(t, "everybody is told", func() bool { return swarm.msgs.Load()-before >= int64(streams) })
		took = append(took, float64(swarm.last.Load()-at.UnixNano())/1e6)
	}
	profiled()
	slices.Sort(took)
	name := fmt.Sprintf("%d subscribers of one service: ", streams)
	s.say(name+"change to last stream, median of 8", quantile(took, .5), "ms", 100)
	s.say(name+"change to last stream, slowest of 8", took[len(took)-1], "ms", 0)
	s.exactly(name+"messages for 8 changes", int(swarm.msgs.Load()-told), 8*streams, "")
	s.say(name+"processor time of a message", float64((cpu(t, p)-used).Microseconds())/float64(8*streams), "us", 0)
	views := number(t, p, "weft_destination_views")
	s.exactly(name+"answers held, one for each zone", int(views), 3, "")
}
