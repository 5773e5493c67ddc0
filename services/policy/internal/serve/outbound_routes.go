package serve

import (
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

// routesAPI answers how to reach a target, completely: weft.routes.v1.
type routesAPI struct{ *Server }

// watcher is what routesDesc asks of its server.
type watcher interface {
	watch(*routesv1.WatchRequest, grpc.ServerStream) error
}

// routesDesc is what protoc-gen-go-grpc would make of the service; made by hand,
// so that the module of the messages needs no gRPC.
func routesDesc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "weft.routes.v1.RoutesService",
		HandlerType: (*watcher)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName:    "Watch",
			ServerStreams: true,
			Handler: func(server any, stream grpc.ServerStream) error {
				r := &routesv1.WatchRequest{}
				if err := stream.RecvMsg(r); err != nil {
					return err //nolint:wrapcheck // it is a status
				}
				return server.(watcher).watch(r, stream) //nolint:forcetypeassert // gRPC has checked HandlerType
			},
		}},
		Metadata: "weft/routes/v1/routes.proto",
	}
}

// watch is outboundAPI's Watch in our words.
func (s routesAPI) watch(r *routesv1.WatchRequest, out grpc.ServerStream) error {
	if r.GetTarget() == nil {
		return status.Error(codes.InvalidArgument, "target is required")
	}
	t, err := askedBy(r.GetSourceWorkload())
	if err != nil {
		return err
	}
	t.complete = true
	if a := r.GetAddress(); a != nil {
		ip, ok := netip.AddrFromSlice(a.GetIp())
		if !ok {
			return status.Error(codes.InvalidArgument, "target has no IP address of 4 or 16 bytes")
		}
		err = t.at(ip.Unmap(), a.GetPort())
	} else {
		err = t.named(r.GetAuthority(), s.cluster.Domain)
	}
	if err != nil {
		return err
	}
	return s.follow(apiRoutes, &t, out)
}
