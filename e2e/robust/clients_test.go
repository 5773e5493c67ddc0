package robust

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/e2e/internal/chronicle"
)

// again is how long a client waits before it asks again.
const again = 200 * time.Millisecond

// everybody is who is let in where no client need say who it is.
const everybody = "everybody"

// clients ask every front-end for everything, until ctx ends.
func (h *house) clients(ctx context.Context, wg *sync.WaitGroup) {
	for _, r := range h.fronts {
		topics := []string{web, steady, calm}
		if r.kind == "policy" {
			topics = []string{guard}
		}
		for _, topic := range topics {
			wg.Go(func() { h.client(ctx, r, topic) })
		}
	}
}

// client asks one replica for one topic, again after each end of the stream.
func (h *house) client(ctx context.Context, r *replica, topic string) {
	who := topic + " at " + r.name
	for ctx.Err() == nil {
		addr, life := r.where()
		h.log.Add(chronicle.Event{What: chronicle.Opened, Who: who, Life: life, Topic: topic})
		err := stream(ctx, addr, topic, func(items []string) {
			h.log.Add(chronicle.Event{What: chronicle.Told, Who: who, Topic: topic, Items: items})
		})
		if ctx.Err() != nil {
			return
		}
		if status.Code(err) == codes.NotFound {
			h.log.Add(chronicle.Event{What: chronicle.Absent, Who: who, Life: life, Topic: topic})
		}
		h.log.Add(chronicle.Event{What: chronicle.Ended, Who: who, Topic: topic, Note: err.Error()})
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// stream asks, and tells of the whole set after each message.
func stream(ctx context.Context, addr, topic string, told func(items []string)) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if topic == guard {
		s, err := inbound.NewInboundServerPoliciesClient(conn).WatchPort(ctx, &inbound.PortSpec{Workload: "shop:" + guard, Port: port})
		if err != nil {
			return fmt.Errorf("asking: %w", err)
		}
		for {
			m, err := s.Recv()
			if err != nil {
				return fmt.Errorf("listening: %w", err)
			}
			told(letIn(m))
		}
	}
	s, err := destination.NewDestinationClient(conn).Get(ctx, &destination.GetDestination{Path: fmt.Sprintf("%s.shop.svc.cluster.local:%d", topic, port)})
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	have := map[string]bool{}
	for {
		m, err := s.Recv()
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		if m.GetNoEndpoints() != nil {
			clear(have)
		}
		for _, a := range m.GetAdd().GetAddrs() {
			have[address(a.GetAddr())] = true
		}
		for _, a := range m.GetRemove().GetAddrs() {
			delete(have, address(a))
		}
		items := make([]string, 0, len(have))
		for a := range have {
			items = append(items, a)
		}
		told(items)
	}
}

func address(a *net.TcpAddress) string {
	n := a.GetIp().GetIpv4()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}), uint16(a.GetPort())).String()
}

// letIn is who may come in.
func letIn(m *inbound.Server) []string {
	var who []string
	for _, a := range m.GetAuthorizations() {
		authn := a.GetAuthentication()
		if authn.GetUnauthenticated() != nil || authn.GetMeshTLS().GetUnauthenticated() != nil {
			who = append(who, everybody)
		}
		for _, id := range authn.GetMeshTLS().GetIdentities().GetIdentities() {
			who = append(who, strings.TrimSuffix(id.GetName(), identitySuffix))
		}
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// deafStreams is how many streams a client has that never reads.
const deafStreams = 20

// deafen opens streams that nobody ever reads; their windows fill, and that is
// all that may happen.
func (h *house) deafen(r *replica) {
	addr, _ := r.where()
	ctx, cancel := context.WithCancel(h.t.Context())
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10))
	if err != nil {
		cancel()
		return
	}
	for range deafStreams {
		if r.kind == "policy" {
			_, err = inbound.NewInboundServerPoliciesClient(conn).WatchPort(ctx, &inbound.PortSpec{Workload: "shop:" + guard, Port: port})
		} else {
			_, err = destination.NewDestinationClient(conn).Get(ctx, &destination.GetDestination{Path: fmt.Sprintf("%s.shop.svc.cluster.local:%d", web, port)})
		}
		if err != nil {
			break // the replica is down, and that is a fault enough
		}
	}
	h.deaf = append(h.deaf, func() { cancel(); _ = conn.Close() })
}
