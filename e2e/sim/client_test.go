package sim

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/net"

	destination "github.com/weftmesh/weft/services/destination/simtest"
	policy "github.com/weftmesh/weft/services/policy/simtest"
)

// client is a proxy's view of one question to one life of one replica.
type client struct {
	of      string // the replica's name
	name    string
	service int
	pod     int // -1 for a question about endpoints

	// stop ends the client: the replica or the pod that it asks about is no more.
	stop func()

	mu   sync.Mutex
	have map[string]bool
	// taken are addresses that this replica has taken back.
	taken   map[string]bool
	verdict string
}

// again is how long a proxy waits before it asks again.
const again = 200 * time.Millisecond

// ask keeps a stream open, through every end of it, until the client is stopped.
func (w *world) ask(c *client, stream func(ctx context.Context) error) {
	kill := w.run(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = stream(ctx) // any end is followed by another question
			select {
			case <-time.After(again):
			case <-ctx.Done():
			}
		}
	})
	c.stop = func() {
		kill()
		w.clients = slices.DeleteFunc(w.clients, func(o *client) bool { return o == c })
	}
	w.clients = append(w.clients, c)
}

// stop ends the clients of a replica, or those that ask about a pod.
func (w *world) stop(which func(*client) bool) {
	for _, c := range slices.Clone(w.clients) {
		if which(c) {
			c.stop()
		}
	}
}

func (w *world) askEndpoints(p *process[*destination.Front], service int) {
	front := p.it
	c := &client{of: p.name, name: fmt.Sprintf("%s.%d %s", p.name, p.born, serviceName(service)), service: service, pod: -1, have: map[string]bool{}, taken: map[string]bool{}}
	path := fmt.Sprintf("%s.shop.svc.cluster.local:%d", serviceName(service), port)
	w.ask(c, func(ctx context.Context) error {
		first := true
		return front.Get(ctx, path, func(m *pb.Update) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if first { // a new stream begins with the whole set
				clear(c.have)
				first = false
			}
			w.told(c.name, c.fold(m))
			for a := range c.have {
				if c.taken[a] {
					w.fault("%s: %s is back, which it had taken back", c.name, a)
				}
			}
		})
	})
}

// fold applies a message and says it in words.
func (c *client) fold(m *pb.Update) string {
	var words []string
	for _, a := range m.GetAdd().GetAddrs() {
		at := addr(a.GetAddr())
		c.have[at] = true
		words = append(words, "+"+at)
	}
	for _, a := range m.GetRemove().GetAddrs() {
		at := addr(a)
		delete(c.have, at)
		c.taken[at] = true
		words = append(words, "-"+at)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func addr(a *net.TcpAddress) string {
	n := a.GetIp().GetIpv4()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), uint16(a.GetPort())).String()
}

func (w *world) askPolicy(p *process[*policy.Front], pod int) {
	front := p.it
	c := &client{of: p.name, name: fmt.Sprintf("%s.%d %s", p.name, p.born, podName(pod)), service: pod % services, pod: pod}
	w.ask(c, func(ctx context.Context) error {
		return front.WatchPort(ctx, "shop:"+podName(pod), port, func(m *inbound.Server) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.verdict = verdict(m)
			w.told(c.name, c.verdict)
			if strings.Contains(c.verdict, "everybody") {
				w.fault("%s lets everybody in: %s", c.name, c.verdict)
			}
		})
	})
}

// verdict says in words who may come in, and how the port speaks.
func verdict(m *inbound.Server) string {
	var who []string
	for _, a := range m.GetAuthorizations() {
		switch authn := a.GetAuthentication(); {
		case authn.GetUnauthenticated() != nil || authn.GetMeshTLS().GetUnauthenticated() != nil:
			who = append(who, "everybody")
		default:
			for _, id := range authn.GetMeshTLS().GetIdentities().GetIdentities() {
				who = append(who, strings.TrimSuffix(id.GetName(), ".serviceaccount.identity.linkerd.cluster.local"))
			}
		}
	}
	if len(who) == 0 {
		who = []string{"nobody"}
	}
	speaks := "detect"
	switch m.GetProtocol().GetKind().(type) {
	case *inbound.ProxyProtocol_Opaque_:
		speaks = "opaque"
	case *inbound.ProxyProtocol_Http2_:
		speaks = "http2"
	}
	return speaks + ", " + strings.Join(who, " ")
}
