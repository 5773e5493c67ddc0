// Package rpc is the gRPC server that every service has: bounded, measured,
// logged, traced, and never killed by a handler that panics.
//
// Streams do not end by themselves, so a server that serves them must be told
// when the process stops: give NewServer the option Draining(ctx) with the
// context of build. Each streaming call's context is then done at that moment,
// and the call ends with codes.Unavailable, which makes clients go elsewhere.
// Without it Serve cuts the streams off after a short wait.
package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/weftmesh/weft/services/kit/conf"
)

// Config bounds a server. The zero value means the defaults below.
type Config struct {
	MaxStreams uint32 `help:"streams one connection may have open at once; 0 means 2000"`
	MaxRecv    int    `help:"bytes one request message may have; 0 means 65536"`
}

// The defaults; keepalive as BUS.md §5.4 recommends.
const (
	defaultMaxStreams = 2000
	defaultMaxRecv    = 64 << 10 // our requests are a name and a token
	maxHeaders        = 8 << 10
	// readBuffer is held by every connection for as long as it is open. gRPC's own
	// 32 KiB is for bulk; what comes here is a name, a token and acknowledgements.
	readBuffer = 4 << 10
	// window is HTTP/2's own. A larger request than that is none of ours, and gRPC
	// need not measure the line with pings to find a better one.
	window           = 64<<10 - 1
	connectTime      = 10 * time.Second // from accept to the end of the handshakes
	keepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	clientPingLeast  = 5 * time.Second
)

// Check judges the settings.
func (c Config) Check() error {
	if c.MaxRecv < 0 {
		return conf.Bad("MaxRecv", "%d is below zero", c.MaxRecv)
	}
	return nil
}

// Options are for NewServer.
func (c Config) Options() []grpc.ServerOption {
	var opts []grpc.ServerOption
	if c.MaxStreams > 0 {
		opts = append(opts, grpc.MaxConcurrentStreams(c.MaxStreams))
	}
	if c.MaxRecv > 0 {
		opts = append(opts, grpc.MaxRecvMsgSize(c.MaxRecv))
	}
	return opts
}

// NewServer makes a server with the house's interceptors and bounds; opts come
// after and so may change the bounds. Metrics go to reg: grpc_server_… and
// weft_rpc_panics_total.
func NewServer(reg prometheus.Registerer, opts ...grpc.ServerOption) *grpc.Server {
	m := newMetrics(reg)
	recovered := recovery.WithRecoveryHandlerContext(m.recovered)
	base := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(defaultMaxStreams),
		grpc.MaxRecvMsgSize(defaultMaxRecv),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ReadBufferSize(readBuffer),
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.ConnectionTimeout(connectTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: clientPingLeast, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(interceptors.UnaryServerInterceptor(m.calls), recovery.UnaryServerInterceptor(recovered)),
		grpc.ChainStreamInterceptor(interceptors.StreamServerInterceptor(m.calls), recovery.StreamServerInterceptor(recovered)),
	}
	base = append(base, traces()...)
	return grpc.NewServer(append(base, opts...)...)
}

// isStop tells whether err is only the end of ctx.
func isStop(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, context.Canceled))
}
