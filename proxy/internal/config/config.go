// Package config reads the proxy's environment: the LINKERD2_PROXY_ variables
// that the injector writes (spec/proxy.md §2), with Linkerd's names, syntax and
// defaults. Every variable is parsed even after one has failed, so that one
// start names all that is wrong. Parse is pure: it opens no file and no socket.
package config

import (
	"net/netip"
	"strings"
	"time"
)

// Prefix stands before every name in this package.
const Prefix = "LINKERD2_PROXY_"

// Config is everything the environment decides. Nothing changes it after Parse.
type Config struct {
	Inbound  Direction
	Outbound Direction

	AdminListen   netip.AddrPort
	ControlListen netip.AddrPort // tap's port, bound only when Tap is set

	ShutdownGrace    time.Duration
	ShutdownEndpoint bool // POST /shutdown is served
	MetricsIdle      time.Duration

	HTTP2 Windows // client side, and the server's when its own are not set

	Destination Destination
	Policy      Policy
	Identity    Identity
	Streams     Streams

	Ingress              bool // INGRESS_MODE
	HideInformational    bool // OUTBOUND_DISABLE_INFORMATIONAL_HEADERS
	HostnameLabels       bool // OUTBOUND_METRICS_HOSTNAME_LABELS
	UnsafeAuthorityLabel bool // INBOUND_METRICS_AUTHORITY_LABELS=unsafe

	Log       string // a tracing filter such as "warn,linkerd=info"
	LogFormat string // "plain" or "json"
	AccessLog string // "apache", "json", "otel" or ""

	Tap          string // the identity that may tap; "" is nobody
	Trace        Trace
	DNS          DNS
	MetricsLevel string // "minimal", "default" or "full"

	Environ  []string // as given, for /env.json
	Warnings []string // what is odd in it, to be logged
}

// A Direction holds what inbound and outbound both have. A zero duration of a
// keepalive, user timeout or HTTP/2 keepalive means "not set".
type Direction struct {
	Listen           []netip.AddrPort // inbound has exactly one
	DetectTimeout    time.Duration
	ConnectTimeout   time.Duration
	DiscoveryIdle    time.Duration
	AcceptKeepalive  time.Duration
	ConnectKeepalive time.Duration
	AcceptUserTO     time.Duration
	ConnectUserTO    time.Duration
	HTTPQueue        Queue
	TCPQueue         Queue // outbound only
	MaxInFlight      int
	MaxIdle          int           // idle HTTP/1 connections per endpoint
	PoolIdle         time.Duration // how long one of those is kept
	Backoff          Backoff
	Server           Server
	Backlog          uint32 // of listen(2); 0 is the system's
}

// A Queue is the room for requests that wait for an endpoint.
type Queue struct {
	Capacity int
	Failfast time.Duration
}

// A Backoff spreads reconnects: between Min and Max, doubling, with up to Jitter
// of the delay added at random.
type Backoff struct {
	Min, Max time.Duration
	Jitter   float64
}

// After is the delay before try n (from 0); random is in [0, 1).
func (b Backoff) After(n int, random float64) time.Duration {
	d := b.Max
	if n < 30 && b.Min<<n < b.Max && b.Min<<n > 0 {
		d = b.Min << n
	}
	return d + time.Duration(float64(d)*b.Jitter*random)
}

// Windows are HTTP/2 flow-control windows in bytes.
type Windows struct{ Stream, Conn uint32 }

// Server is how the proxy serves HTTP/2. Zero means the library's value.
type Server struct {
	Windows              Windows
	AdaptiveFlowControl  bool
	KeepaliveInterval    time.Duration
	KeepaliveTimeout     time.Duration
	MaxConcurrentStreams uint32
	MaxFrameSize         uint32
	MaxHeaderListSize    uint32
	MaxConnectionAge     time.Duration // 0 is the direction's own
	// Of the library that Linkerd uses; here there is nothing that they could bound.
	MaxPendingResets uint32
	MaxSendBuffer    uint32
}

// A Svc is one control-plane service. Name is empty only when Loopback.
type Svc struct {
	// Addr is host:port. Weft also takes several, separated by commas: the
	// replicas of a service that has no name of its own.
	Addr string
	Name string // the identity its certificate must carry
}

// Destination is where endpoints and profiles come from.
type Destination struct {
	Svc            Svc
	Context        string
	Suffixes       Suffixes
	Networks       []netip.Prefix
	ProfileTimeout time.Duration
}

// Policy is where policies come from, and what holds until they arrive.
type Policy struct {
	Svc             Svc
	Workload        string
	ClusterNetworks []netip.Prefix
	Default         string // one of Defaults
	Ports           Ports  // watched from the start
	OpaquePorts     Ports  // INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION
	Gateway         Suffixes
	IPs             []netip.Addr // INBOUND_IPS
}

// Identity is who the proxy is and how it gets a certificate.
type Identity struct {
	Svc        Svc
	Name       string // local name: identity
	ServerName string // SNI that means "terminate here"
	Dir        string
	Anchors    string // PEM text
	TokenFile  string
	MinRefresh time.Duration
	MaxRefresh time.Duration
	SPIRE      SPIRE
}

// SPIRE is where certificates come from in place of Linkerd's identity service.
type SPIRE struct {
	Socket  string // path of the Workload API's socket; "" if it is not used
	Backoff Backoff
}

// Trace is where spans go, and what they say of the process.
type Trace struct {
	Svc        Svc // Addr is "" if there is no collector
	Service    string
	File       string // of attributes, one k="v" a line
	Extra      string // as in File
	OTel       string // OTEL_RESOURCE_ATTRIBUTES, k=v separated by commas
	Hostname   string
	Attributes map[string]string // Extra and OTel as they are read; OTel wins
}

// DNS bounds how often the control plane's names are looked up. Zero is no bound.
type DNS struct{ MinTTL, MaxTTL time.Duration }

// Streams bounds the watch streams of non-loopback control-plane services; zero
// means no bound.
type Streams struct{ Initial, Idle, Lifetime time.Duration }

// Defaults are the values INBOUND_DEFAULT_POLICY may have.
var Defaults = []string{"deny", "all-authenticated", "all-unauthenticated", "cluster-authenticated", "cluster-unauthenticated", "audit"}

// Addrs are the service's addresses, at least one.
func (s Svc) Addrs() []string { return strings.Split(s.Addr, ",") }

// Loopback reports whether no address needs TLS: 127/8, ::1, or the name
// "localhost." with its dot.
func (s Svc) Loopback() bool {
	for _, addr := range s.Addrs() {
		if !loopback(addr) {
			return false
		}
	}
	return true
}

func loopback(addr string) bool {
	host := addr
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost.") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// InboundPort is the port that carries direct connections, 4143 by default.
func (c *Config) InboundPort() uint16 { return c.Inbound.Listen[0].Port() }
