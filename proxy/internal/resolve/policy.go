package resolve

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Protocol is what a policy says is spoken on a target.
type Protocol uint8

// The protocols. Detect means: look at the first bytes.
const (
	Detect Protocol = iota
	Opaque
	HTTP1
	HTTP2
	GRPC
	TLS
	Invalid // the policy could not be read; HTTP is answered 500, TCP closed
)

// String is the protocol label's value.
func (p Protocol) String() string {
	switch p {
	case Opaque:
		return "opaq"
	case HTTP1:
		return "http/1"
	case HTTP2, GRPC:
		return "http/2"
	case TLS:
		return "tls"
	case Invalid:
		return "invalid"
	}
	return "detect"
}

// A Ref names the resource behind a policy, route or backend.
type Ref struct {
	Group, Kind, Namespace, Name, Section string
	Port                                  uint16
}

// String names it for people.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
}

// PortLabel is the port as a metric label: "" if there is none.
func (r Ref) PortLabel() string {
	if r.Port == 0 {
		return ""
	}
	return strconv.Itoa(int(r.Port))
}

// fallback is the Ref of what nobody configured.
func fallback(name string) Ref { return Ref{Kind: "default", Name: name} }

// A Policy is how to reach a target. It is a value: nothing changes it.
type Policy struct {
	Parent   Ref
	Protocol Protocol
	Reason   string // why Protocol is Invalid
	HTTP1    HTTP   // used for Detect and HTTP1
	HTTP2    HTTP   // used for Detect, HTTP2 and GRPC
	Opaque   Split  // used for Detect and Opaque
	TLS      []TLSRoute
	Closes   Closing // connections that are not HTTP
}

// A Closing is why a route, or a backend of it, closes the connections that it takes.
type Closing uint8

// The reasons: none, a filter that forbids them, and one in place of a backend that
// is none.
const (
	Stays Closing = iota
	Forbidden
	NoBackend
)

// What a policy says of connections that it closes.
var (
	ErrForbidden = errors.New("the policy forbids this connection")
	ErrNoBackend = errors.New("the policy has no valid backend for this connection")
)

// Err is nil for Stays.
func (c Closing) Err() error {
	switch c {
	case Forbidden:
		return ErrForbidden
	case NoBackend:
		return ErrNoBackend
	case Stays:
	}
	return nil
}

// A TLSRoute says where TLS connections for some names go, as they are: nobody
// opens them.
type TLSRoute struct {
	Split
	SNIs   []HostMatch // empty means every name
	Closes Closing     // such connections
}

// HTTP is how requests are routed.
type HTTP struct {
	Routes  []Route
	Accrual Accrual
}

// A Route applies to some hosts; its rules are tried by how well they match.
type Route struct {
	Ref   Ref
	GRPC  bool
	Hosts []HostMatch // empty means every host
	Rules []Rule
}

// A Rule says where requests that match go, and how long and how often to try.
type Rule struct {
	Matches  []Match // empty means every request
	Filters  []Filter
	Backends Split
	Timeouts Timeouts
	Retry    Retry
	// Headers of the request (l5d-retry-…, l5d-…-timeout) may change Timeouts and
	// Retry.
	AllowHeaders bool
	Session      *Session     // nil if requests are independent
	Profile      *ProfileRule // nil but for rules of a ServiceProfile
}

// Timeouts of a request; zero means none.
type Timeouts struct {
	Request  time.Duration // the whole stream
	Response time.Duration // from the request's end to the response's
	Idle     time.Duration // without a piece of either body
	Attempt  time.Duration // of one try, until its answer is complete
}

// A Retry says what is tried again; Limit 0 means nothing.
type Retry struct {
	Limit    int
	MaxBytes int // request body kept for another try
	Statuses []StatusRange
	GRPC     []int         // codes
	Timeout  time.Duration // to response headers, of every try but the last
	Backoff  Backoff
}

// A StatusRange is inclusive.
type StatusRange struct{ Low, High int }

// A Backoff doubles from Min to Max and spreads by Jitter; Min 0 means none.
type Backoff struct {
	Min, Max time.Duration
	Jitter   float64
}

// Accrual says when an endpoint that answers with failures is left alone. Zero
// means never.
type Accrual struct {
	Unified     bool // of rate and row: answers that ask for less count against the rate
	Consecutive int  // failures in a row
	Backoff     Backoff
	SuccessRate float64 // below it, over Window with at least MinRequests, trips; 0 means no rate
	Window      time.Duration
	MinRequests int
}

// SplitKind is how a backend is chosen.
type SplitKind uint8

// The kinds of splits.
const (
	SplitEmpty  SplitKind = iota // nothing may be sent
	SplitFirst                   // the first that is available
	SplitRandom                  // by weight, among those that are available
)

// A Split is the backends of a rule.
type Split struct {
	Ref      Ref // of the route, for opaque traffic
	Kind     SplitKind
	Backends []Backend
}

// A Backend is where a share of the traffic goes: to one address, or to the
// endpoints of a name. One with neither cannot be sent to.
type Backend struct {
	Ref     Ref
	Weight  uint32
	Filters []Filter
	Closes  Closing // connections that choose it
	Forward *Endpoint
	Path    string // what Destination.Get is asked; "" if Forward
	Load    Load
}

// Load is how a balancer estimates latency.
type Load struct {
	DefaultRTT time.Duration
	Decay      time.Duration
	// Penalty is what a failure counts as, at least, and MaxRetryAfter what the
	// answer may ask for at most; 0 means that failures cost what they took.
	Penalty, MaxRetryAfter time.Duration
}

// DefaultLoad is what Linkerd's policy controller sends.
var DefaultLoad = Load{DefaultRTT: 30 * time.Millisecond, Decay: 10 * time.Second}

// Key tells backends apart that must not share endpoints: it agrees with
// equality of everything that a pool is built from.
func (b Backend) Key(a Accrual) string {
	if b.Forward != nil {
		return "forward " + b.Forward.key()
	}
	return fmt.Sprintf("balance %q %v %v", b.Path, b.Load, a)
}
