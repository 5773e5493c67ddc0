package control

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// serverTLS is the other side of meshTLS, for tests.
type serverTLS struct{ meshTLS }

func (s serverTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn := tls.Server(raw, s.config)
	if err := conn.Handshake(); err != nil {
		return nil, nil, err
	}
	return conn, credentials.TLSInfo{
		State:          conn.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

func (s serverTLS) Clone() credentials.TransportCredentials { return s }
