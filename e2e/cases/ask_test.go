package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	netapi "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/e2e/internal/caseset"
)

// answers collects what one stream says.
type answers struct {
	mu   sync.Mutex
	all  []caseset.Message
	news chan struct{}
}

// since returns the messages after the first n.
func (a *answers) since(n int) []caseset.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]caseset.Message{}, a.all[n:]...)
}

func (a *answers) add(m caseset.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, m)
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// ask opens the stream that the case asks for and collects until it ends.
func ask(ctx context.Context, conn *grpc.ClientConn, r caseset.Request) (*answers, error) {
	out := &answers{news: make(chan struct{}, 1)}
	next, err := open(ctx, conn, r)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			m, err := next()
			if err == nil {
				out.add(m)
				continue
			}
			if ctx.Err() != nil {
				return
			}
			if errors.Is(err, io.EOF) {
				out.add(caseset.Message{"stream_end": true})
			} else {
				out.add(caseset.Message{"status": status.Code(err).String(), "text": status.Convert(err).Message()})
			}
			return
		}
	}()
	return out, nil
}

func open(ctx context.Context, conn *grpc.ClientConn, r caseset.Request) (func() (caseset.Message, error), error) {
	switch r.RPC {
	case "Destination.Get":
		stream, err := destination.NewDestinationClient(conn).Get(ctx, get(r))
		return each(stream, err, caseset.Update)
	case "Destination.GetProfile":
		stream, err := destination.NewDestinationClient(conn).GetProfile(ctx, get(r))
		return each(stream, err, caseset.Profile)
	case "InboundServerPolicies.WatchPort":
		stream, err := inbound.NewInboundServerPoliciesClient(conn).WatchPort(ctx, &inbound.PortSpec{Workload: r.Workload, Port: r.Port})
		return each(stream, err, caseset.Inbound)
	case "OutboundPolicies.Watch":
		spec, err := traffic(r)
		if err != nil {
			return nil, err
		}
		stream, err := outbound.NewOutboundPoliciesClient(conn).Watch(ctx, spec)
		return each(stream, err, caseset.Outbound)
	}
	return nil, fmt.Errorf("unknown call %q", r.RPC)
}

func each[T any](stream interface{ Recv() (T, error) }, err error, say func(T) caseset.Message) (func() (caseset.Message, error), error) {
	if err != nil {
		return nil, err
	}
	return func() (caseset.Message, error) {
		got, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		return say(got), nil
	}, nil
}

func get(r caseset.Request) *destination.GetDestination {
	token := string(r.Token)
	var quoted string
	if json.Unmarshal(r.Token, &quoted) == nil {
		token = quoted
	}
	return &destination.GetDestination{Scheme: r.Scheme, Path: r.Path, ContextToken: token}
}

func traffic(r caseset.Request) (*outbound.TrafficSpec, error) {
	spec := &outbound.TrafficSpec{SourceWorkload: r.SourceWorkload}
	if r.Target.Authority != "" {
		spec.Target = &outbound.TrafficSpec_Authority{Authority: r.Target.Authority}
		return spec, nil
	}
	if r.Target.Addr == "" {
		return spec, nil
	}
	host, port, err := net.SplitHostPort(r.Target.Addr)
	if err != nil {
		return nil, fmt.Errorf("reading target: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading target: %w", err)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil, fmt.Errorf("reading target: %w", err)
	}
	spec.Target = &outbound.TrafficSpec_Addr{Addr: &netapi.TcpAddress{Ip: caseset.IP(addr), Port: uint32(number)}}
	return spec, nil
}
