package resolve

import (
	"context"
	"sync/atomic"

	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
	"github.com/weftmesh/weft/proxy/internal/address"
	"github.com/weftmesh/weft/proxy/internal/control"
)

// routesWatch is the method of Weft's own service for routes, which says all that
// Linkerd's does and more.
const routesWatch = "/weft.routes.v1.RoutesService/Watch"

// lacking remembers the connection whose other end does not know Weft's service:
// it is not asked again there. A connection to another server, or to the same one
// after it was replaced, is asked anew.
type lacking struct{ conn atomic.Pointer[string] }

// openPolicy asks for the policy of a target: Weft's service first, Linkerd's
// where there is no such.
func (r *Resolver) openPolicy(ctx context.Context, t Target) (control.Stream[*Policy], error) {
	a := &policyStream{r: r, t: t, ctx: ctx}
	if r.Routes == nil || r.lacking.conn.Load() != nil {
		return a, a.linkerds()
	}
	return a, a.wefts()
}

// policyStream is a stream of policies, from either service.
type policyStream struct {
	r       *Resolver
	t       Target
	ctx     context.Context // of the stream, which may have to be opened anew
	weft    grpc.ClientStream
	linkerd grpc.ServerStreamingClient[outpb.OutboundPolicy]
	looked  bool
}

func (a *policyStream) wefts() error {
	desc := &grpc.StreamDesc{StreamName: "Watch", ServerStreams: true}
	s, err := a.r.Routes.NewStream(a.ctx, desc, routesWatch)
	if err != nil {
		return err
	}
	q := &routesv1.WatchRequest{SourceWorkload: a.r.Workload}
	if a.t.Addr.IsValid() {
		q.Target = &routesv1.WatchRequest_Address{Address: &routesv1.Address{Ip: a.t.Addr.Addr().Unmap().AsSlice(), Port: uint32(a.t.Addr.Port())}}
	} else {
		q.Target = &routesv1.WatchRequest_Authority{Authority: a.t.Authority}
	}
	a.weft = s
	if err := s.SendMsg(q); err != nil {
		return nil // the status comes with the first message
	}
	_ = s.CloseSend()
	return nil
}

func (a *policyStream) linkerds() error {
	spec := &outpb.TrafficSpec{SourceWorkload: a.r.Workload}
	if a.t.Addr.IsValid() {
		spec.Target = &outpb.TrafficSpec_Addr{Addr: address.TCP(a.t.Addr)}
	} else {
		spec.Target = &outpb.TrafficSpec_Authority{Authority: a.t.Authority}
	}
	var err error
	a.linkerd, err = a.r.Policy.Watch(a.ctx, spec)
	return err
}

// Recv is the next policy.
func (a *policyStream) Recv() (*Policy, error) {
	if a.weft != nil {
		m := &routesv1.WatchResponse{}
		err := a.weft.RecvMsg(m)
		if err == nil {
			return extended(m), nil
		}
		if status.Code(err) != codes.Unimplemented {
			return nil, err
		}
		where := connOf(a.weft)
		a.r.lacking.conn.Store(&where)
		a.weft = nil
		if err := a.linkerds(); err != nil {
			return nil, err
		}
	}
	p, err := a.linkerd.Recv()
	if err != nil {
		return nil, err
	}
	if last := a.r.lacking.conn.Load(); !a.looked && last != nil && connOf(a.linkerd) != *last {
		a.r.lacking.conn.CompareAndSwap(last, nil) // who answers now may know more: the next stream asks
	}
	a.looked = true
	return policyOf(p), nil
}

// connOf names the connection of a stream that has been answered.
func connOf(s grpc.ClientStream) string {
	p, ok := peer.FromContext(s.Context())
	if !ok || p.LocalAddr == nil || p.Addr == nil {
		return ""
	}
	return p.LocalAddr.String() + " " + p.Addr.String()
}
