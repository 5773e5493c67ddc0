package scale_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weftmesh/weft/e2e/internal/proc"
)

// held is what NATS keeps for a mesh.
type held struct {
	connections, subscriptions, streams, consumers int
}

// held counts once the front-ends have joined those who answer. A connection's
// subscription for its own answers comes with its first question and is not
// counted: there is at most one.
func (m *mesh) held() held {
	m.t.Helper()
	h := held{connections: m.nats.NumClients()}
	eventually(m.t, "three processes answer questions, and policy those about statuses", func() bool {
		subs, err := m.nats.Subsz(&server.SubszOptions{Subscriptions: true, Limit: 100_000})
		if err != nil {
			m.t.Fatal(err)
		}
		h.subscriptions = 0
		asked, statuses := 0, 0
		for _, s := range subs.Subs {
			if strings.HasPrefix(s.Subject, "weft.") {
				h.subscriptions++
			}
			if strings.HasSuffix(s.Subject, ".ask") {
				asked++
			}
			if strings.HasSuffix(s.Subject, ".status") {
				statuses++
			}
		}
		return asked == 3 && statuses == 1
	})
	if js, err := m.nats.Jsz(&server.JSzOptions{}); err == nil {
		h.streams, h.consumers = js.Streams, js.Consumers
	}
	return h
}

// TestNATSIsConstant: what NATS keeps follows from the number of processes, not
// from Services, endpoints or proxies.
func TestNATSIsConstant(t *testing.T) {
	s := bench(t, "constant")
	at := func(pods, streams int) held {
		m := start(t, pods)
		_, addr := m.destination()
		m.launch("policy", "-listen", proc.FreePort(t)).Ready()
		swarm := newSwarm(t, m.size.Services())
		ask := streamsOf(m, streams, true)
		swarm.spread(t, addr, 1+streams/20, ask)
		swarm.answered(t, streams)
		return m.held()
	}
	small, large := at(150, 10), at(scaledAtLeast(15_000, 1500), scaledAtLeast(10_000, 200))
	s.exactly("NATS connections, large beside small", large.connections, small.connections, "")
	s.exactly("NATS subscriptions, large beside small", large.subscriptions, small.subscriptions, "")
	s.exactly("JetStream streams", large.streams, 0, "")
	s.exactly("JetStream consumers", large.consumers, 0, "")
}
