// Package derive decides what a proxy is told. It is pure: the rows that bear
// on a question and who asks go in, the complete answer comes out. Equal inputs
// give equal bytes, so that an answer that did not change is not sent again.
package derive

import (
	"errors"
	"fmt"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/services/destination/internal/ports"
)

// Config is what the installation decides for all answers.
type Config struct {
	// ControlPlane is the namespace of this control plane: only pods that it
	// meshed are given an identity.
	ControlPlane  string
	ClusterDomain string
	TrustDomain   string
	// ForceOpaqueTransport sends every meshed connection to the proxy's inbound
	// port with a transport header (-outbound-transport-mode transport-header).
	ForceOpaqueTransport bool
	// UpgradeHTTP2 lets proxies carry HTTP/1 to each other in HTTP/2.
	UpgradeHTTP2 bool
	IPv6         bool
	// ZoneWeights gives endpoints of the client's zone ten times the weight.
	ZoneWeights bool
	// Opaque are the ports that are opaque where no annotation says otherwise.
	Opaque ports.Set
	// HTTP2 is handed to clients of meshed endpoints; nil for their defaults.
	HTTP2 *pb.Http2ClientParams
}

// Reason is why a question has no answer.
type Reason int

// The reasons, each of which becomes one gRPC status (spec §2.1, §4.1).
const (
	Missing  Reason = iota + 1 // the object is not there
	Invalid                    // it can't be asked for in this way
	Conflict                   // two objects claim it
	Unready                    // what would answer is not linked
)

// Refusal is the error of every question that has no answer.
type Refusal struct {
	Reason Reason
	Text   string
}

// Error is the text a client sees.
func (r *Refusal) Error() string { return r.Text }

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

// errProxyPorts means that a meshed pod's proxy could not be read, so that no
// connection to it could be told how to go. Its address is left out.
var errProxyPorts = errors.New("the proxy container's ports are unreadable")

// errNotUTF8 means that a label could not be told to anybody.
var errNotUTF8 = errors.New("a label is not UTF-8")

// Weights are in units of a ten-thousandth, so that a client can scale them.
const (
	defaultWeight = 10000
	zoneFactor    = 10
)

// defaultInbound is the inbound port of an ExternalWorkload that declares none.
const (
	defaultInbound = 4143
	proxyPortName  = "linkerd-proxy"
)
