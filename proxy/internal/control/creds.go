package control

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// meshTLS is gRPC's TLS without its demand for the ALPN "h2": the control plane
// sits behind mesh proxies, which select no protocol (spec/proxy.md §8.2).
type meshTLS struct{ config *tls.Config }

var _ credentials.TransportCredentials = meshTLS{}

func (m meshTLS) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Client(raw, m.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, err
	}
	return conn, credentials.TLSInfo{
		State:          conn.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (m meshTLS) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, net.ErrClosed // only ever a client
}

func (m meshTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (m meshTLS) Clone() credentials.TransportCredentials {
	return meshTLS{config: m.config.Clone()}
}

// OverrideServerName is part of the interface; the name is the service's identity
// and nothing may change it.
func (m meshTLS) OverrideServerName(string) error { return nil }
