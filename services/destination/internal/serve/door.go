package serve

import (
	"context"
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/services/destination/internal/ask"
)

const (
	// defaultClientStreams is five times what the busiest proxy of the field has
	// open: a stream of each call for some thousand targets.
	defaultClientStreams = 10_000
	// defaultStreams bounds memory: a stream costs some 16 KiB.
	defaultStreams = 150_000
	// headerIdentity is what this pod's own proxy says of who connects.
	headerIdentity = "l5d-client-id"
)

// door counts the open streams and turns away those that are too many, at once
// and with a status: a client that hangs can't tell what is wrong.
type door struct {
	each, all int
	refused   *prometheus.CounterVec

	mu   sync.Mutex
	open map[visitor]*place
	sum  int
}

// place is one client's, for as long as it has streams.
type place struct {
	door *door
	who  visitor
	open int // guarded by door.mu
}

// visitor tells clients apart. All connections come from this pod's own proxy,
// so what a client says of itself counts, with what the proxy knows of it: no
// client can use up another's share by taking its name alone.
type visitor struct {
	// host has no port if the client says which pod it is: without its name
	// connections are told apart, not hosts.
	host netip.AddrPort
	// other is an address that is not of TCP.
	other                    string
	identity, namespace, pod string
}

func newDoor(c Config, reg prometheus.Registerer) *door {
	d := &door{each: c.ClientStreams, all: c.Streams, open: make(map[visitor]*place)}
	if d.each <= 0 {
		d.each = defaultClientStreams
	}
	if d.all <= 0 {
		d.all = defaultStreams
	}
	d.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_destination_streams_refused_total",
		Help: "Streams that were too many, for one client or for this replica.",
	}, []string{"limit"})
	reg.MustRegister(d.refused)
	return d
}

func visitorOf(ctx context.Context, c ask.Client) visitor {
	v := visitor{namespace: c.Namespace, pod: c.Pod}
	if p, ok := peer.FromContext(ctx); ok {
		switch tcp, ok := p.Addr.(*net.TCPAddr); {
		case !ok:
			v.other = p.Addr.String()
		case c.Pod != "":
			v.host = netip.AddrPortFrom(tcp.AddrPort().Addr(), 0)
		default:
			v.host = tcp.AddrPort()
		}
	}
	if ids := metadata.ValueFromIncomingContext(ctx, headerIdentity); len(ids) > 0 {
		v.identity = ids[0]
	}
	return v
}

// enter lets a stream in, which leaves its place when it ends, or refuses it.
func (d *door) enter(v visitor) (*place, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.open[v]
	switch {
	case p != nil && p.open >= d.each:
		d.refused.WithLabelValues("client").Inc()
		return nil, status.Errorf(codes.ResourceExhausted, "this client has %d streams open, which is the most (-serve.client-streams)", d.each)
	case d.sum >= d.all:
		d.refused.WithLabelValues("replica").Inc()
		return nil, status.Errorf(codes.ResourceExhausted, "this replica has %d streams open, which is the most (-serve.streams); try another", d.all)
	}
	if p == nil {
		p = &place{door: d, who: v}
		d.open[v] = p
	}
	p.open++
	d.sum++
	return p, nil
}

// leave ends what enter began.
func (p *place) leave() {
	p.door.mu.Lock()
	defer p.door.mu.Unlock()
	p.door.sum--
	if p.open--; p.open == 0 {
		delete(p.door.open, p.who)
	}
}
