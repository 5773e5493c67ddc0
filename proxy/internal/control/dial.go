// Package control connects to the control plane: plaintext on loopback only,
// else mutual TLS to a named identity. Watches reopen on any end of a stream, so
// a caller sees an outage only as silence and keeps its last value.
package control

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/identity"
)

const (
	// Client windows of control-plane connections (spec/proxy.md §4).
	streamWindow = 65535
	connWindow   = 1 << 20
	// maxMessage bounds one answer: a service of 20,000 endpoints is about 4 MiB.
	maxMessage = 16 << 20
	// A replica that vanishes without a word is noticed by the kernel within
	// about 16 s, and one that hangs by HTTP/2 pings.
	tcpIdle     = 10 * time.Second
	tcpInterval = 3 * time.Second
	tcpProbes   = 2
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
)

// serviceConfig spreads calls over all addresses of the name.
const serviceConfig = `{"loadBalancingConfig":[{"round_robin":{}}]}`

// A Dialer makes connections to the control plane. The zero value works.
type Dialer struct {
	TTL  config.DNS
	Told Told
}

// Dial is Dialer's, counting nothing.
func Dial(ctx context.Context, svc config.Svc, local *identity.Local) (*grpc.ClientConn, error) {
	return Dialer{}.Dial(ctx, svc, local)
}

// Dial returns a connection to svc, which is made when first used and remade for
// ever. local is the identity shown to the service; it may be nil for loopback.
func (d Dialer) Dial(_ context.Context, svc config.Svc, local *identity.Local) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if !svc.Loopback() {
		if svc.Name == "" || local == nil {
			return nil, fmt.Errorf("connecting to %s: an address outside this host needs an identity", svc.Addr)
		}
		creds = meshTLS{config: local.ClientTLS(svc.Name, svc.Name)}
	}
	told := d.Told.to(svc)
	target, opts := d.where(svc.Addrs(), told)
	if told.Metrics != nil {
		opts = append(opts, grpc.WithStatsHandler(told))
	}
	opts = append(opts,
		grpc.WithTransportCredentials(creds),
		grpc.WithAuthority(svc.Addrs()[0]),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithDisableServiceConfig(), // a DNS TXT record must not decide this
		grpc.WithNoProxy(),              // HTTP_PROXY is for applications
		grpc.WithContextDialer(dialTCP),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
		// Calls wait for a connection rather than fail: who cannot wait has a deadline.
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.WaitForReady(true)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	)
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", svc.Addr, err)
	}
	return conn, nil
}

// where resolves a single name by DNS, and takes several addresses as they are.
func (d Dialer) where(addrs []string, told Told) (target string, opts []grpc.DialOption) {
	for i, addr := range addrs {
		if host, port, ok := strings.Cut(addr, ":"); ok && strings.EqualFold(host, "localhost.") {
			addrs[i] = "127.0.0.1:" + port // answered without DNS
		}
	}
	if len(addrs) == 1 {
		if n, ok := newNames(addrs[0], d.TTL, told); ok {
			return "weft:///" + addrs[0], []grpc.DialOption{grpc.WithResolvers(builder{n})}
		}
		told.endpoints(1)
		return "passthrough:///" + addrs[0], nil
	}
	r := manual.NewBuilderWithScheme("replicas")
	told.endpoints(len(addrs))
	var state resolver.State
	for _, addr := range addrs {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: addr}}})
	}
	r.InitialState(state)
	return "replicas:///", []grpc.DialOption{grpc.WithResolvers(r)}
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: tcpIdle, Interval: tcpInterval, Count: tcpProbes,
	}}
	return d.DialContext(ctx, "tcp", addr)
}
