package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ExitCode is what a process leaves with when its environment is wrong (EX_USAGE).
const ExitCode = 64

// Error lists everything that is wrong with an environment.
type Error struct{ Problems []string }

func (e *Error) Error() string {
	return "reading the environment: " + strings.Join(e.Problems, "; ")
}

// reader looks names up and collects what is wrong with their values.
type reader struct {
	values   map[string]string // by the name without Prefix
	others   map[string]string // of names without it
	problems []string
	warnings []string
}

func (r *reader) fail(name string, format string, args ...any) {
	r.problems = append(r.problems, Prefix+name+": "+fmt.Sprintf(format, args...))
}

func (r *reader) warn(name, text string) {
	r.warnings = append(r.warnings, Prefix+name+": "+text)
}

func (r *reader) has(name string) bool { _, ok := r.values[name]; return ok }

func newReader(environ []string) *reader {
	r := &reader{values: map[string]string{}, others: map[string]string{}}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch short, ours := strings.CutPrefix(name, Prefix); {
		case ours:
			r.values[short] = value
		case name == "OTEL_RESOURCE_ATTRIBUTES", name == "HOSTNAME":
			r.others[name] = value
		}
	}
	return r
}

// get parses the variable with parse, or keeps otherwise when it is not set.
func get[T any](r *reader, name string, otherwise T, parse func(string) (T, error)) T {
	s, ok := r.values[name]
	if !ok {
		return otherwise
	}
	v, err := parse(s)
	if err != nil {
		r.fail(name, "%v", err)
		return otherwise
	}
	return v
}

func text(s string) (string, error) { return s, nil }

// Parse reads the variables in environ ("NAME=value"). The error is an *Error
// that names every bad variable; the process then exits with ExitCode.
func Parse(environ []string) (Config, error) {
	r := newReader(environ)

	c := Config{
		Environ:          slices.Clone(environ),
		AdminListen:      get(r, "ADMIN_LISTEN_ADDR", netip.MustParseAddrPort("127.0.0.1:4191"), netip.ParseAddrPort),
		ControlListen:    get(r, "CONTROL_LISTEN_ADDR", netip.MustParseAddrPort("0.0.0.0:4190"), netip.ParseAddrPort),
		ShutdownGrace:    get(r, "SHUTDOWN_GRACE_PERIOD", 2*time.Minute, ParseDuration),
		ShutdownEndpoint: get(r, "SHUTDOWN_ENDPOINT_ENABLED", false, ParseBool),
		MetricsIdle:      get(r, "METRICS_RETAIN_IDLE", 10*time.Minute, ParseDuration),
		HTTP2: Windows{
			Stream: get(r, "HTTP2_INITIAL_STREAM_WINDOW_SIZE", 65535, parseUint32),
			Conn:   get(r, "HTTP2_INITIAL_CONNECTION_WINDOW_SIZE", 1048576, parseUint32),
		},
		Ingress:        get(r, "INGRESS_MODE", false, ParseBool),
		HostnameLabels: get(r, "OUTBOUND_METRICS_HOSTNAME_LABELS", false, ParseBool),
		Log:            get(r, "LOG", "warn,linkerd=info,hickory=error", text),
		LogFormat:      get(r, "LOG_FORMAT", "plain", parseFormat),
		AccessLog:      get(r, "ACCESS_LOG", "", parseAccessLog),
		Tap:            get(r, "TAP_SVC_NAME", "", parseIdentity),
		MetricsLevel:   get(r, "METRICS_LEVEL", "default", parseMetricsLevel),
		DNS: DNS{
			MinTTL: get(r, "DNS_MIN_TTL", 0, ParseDuration),
			MaxTTL: get(r, "DNS_MAX_TTL", 0, ParseDuration),
		},
	}
	c.HideInformational = get(r, "OUTBOUND_DISABLE_INFORMATIONAL_HEADERS", c.Ingress, ParseBool)
	c.UnsafeAuthorityLabel = get(r, "INBOUND_METRICS_AUTHORITY_LABELS", "", text) == "unsafe"
	c.Inbound = r.inbound(c.HTTP2)
	c.Outbound = r.outbound(c.HTTP2)
	c.Destination = r.destination()
	c.Policy = r.policy()
	c.Identity = r.identity()
	c.Streams = r.streams()
	c.Trace = r.trace()
	if d := c.DNS; d.MaxTTL > 0 && d.MinTTL > d.MaxTTL {
		r.fail("DNS_MIN_TTL", "want MIN_TTL <= MAX_TTL, got %v and %v", d.MinTTL, d.MaxTTL)
	}

	if len(r.problems) > 0 {
		slices.Sort(r.problems)
		return Config{}, &Error{Problems: r.problems}
	}
	c.Warnings = r.warnings
	return c, nil
}

func parseFormat(s string) (string, error) {
	switch f := strings.ToLower(s); f {
	case "plain", "json":
		return f, nil
	}
	return "", fmt.Errorf("want PLAIN or JSON, got %q", s)
}

func parseAccessLog(s string) (string, error) { return oneOf(s, "apache", "json", "otel") }

// parseMetricsLevel: the level is Weft's (complaint I1); other proxies do not
// know the variable, and ignore it.
func parseMetricsLevel(s string) (string, error) { return oneOf(s, "minimal", "default", "full") }

func oneOf(s string, allowed ...string) (string, error) {
	if v := strings.ToLower(strings.TrimSpace(s)); slices.Contains(allowed, v) {
		return v, nil
	}
	return "", fmt.Errorf("want one of %s, got %q", strings.Join(allowed, ", "), s)
}

func (r *reader) inbound(w Windows) Direction {
	listen := get(r, "INBOUND_LISTEN_ADDR", netip.MustParseAddrPort("0.0.0.0:4143"), netip.ParseAddrPort)
	d := r.direction("INBOUND", w, Direction{
		Listen:         []netip.AddrPort{listen},
		ConnectTimeout: 300 * time.Millisecond,
		DiscoveryIdle:  90 * time.Second,
		HTTPQueue:      Queue{10000, time.Second},
		Backoff:        Backoff{100 * time.Millisecond, 10 * time.Second, 0.1},
	})
	// The inbound name really has no INBOUND in it.
	d.MaxIdle = get(r, "MAX_IDLE_CONNS_PER_ENDPOINT", 10000, parseCount)
	return d
}

func (r *reader) outbound(w Windows) Direction {
	listen := []netip.AddrPort{get(r, "OUTBOUND_LISTEN_ADDR", netip.MustParseAddrPort("127.0.0.1:4140"), netip.ParseAddrPort)}
	listen = get(r, "OUTBOUND_LISTEN_ADDRS", listen, func(s string) ([]netip.AddrPort, error) {
		addrs, err := parseAddrs(s)
		if err == nil && (len(addrs) < 1 || len(addrs) > 2) {
			err = fmt.Errorf("want one or two addresses, got %d", len(addrs))
		}
		return addrs, err
	})
	d := r.direction("OUTBOUND", w, Direction{
		Listen:         listen,
		ConnectTimeout: time.Second,
		DiscoveryIdle:  5 * time.Second,
		HTTPQueue:      Queue{10000, 3 * time.Second},
		Backoff:        Backoff{100 * time.Millisecond, time.Minute, 0.1},
	})
	d.TCPQueue = r.queue("OUTBOUND_TCP_QUEUE", Queue{10000, 3 * time.Second})
	d.MaxIdle = get(r, "OUTBOUND_MAX_IDLE_CONNS_PER_ENDPOINT", 10000, parseCount)
	return d
}

// direction fills what both directions name alike over the defaults in d.
func (r *reader) direction(p string, w Windows, d Direction) Direction {
	d.DetectTimeout = get(r, p+"_DETECT_TIMEOUT", 10*time.Second, ParseDuration)
	d.ConnectTimeout = get(r, p+"_CONNECT_TIMEOUT", d.ConnectTimeout, ParseDuration)
	d.DiscoveryIdle = get(r, p+"_DISCOVERY_IDLE_TIMEOUT", d.DiscoveryIdle, ParseDuration)
	d.AcceptKeepalive = get(r, p+"_ACCEPT_KEEPALIVE", 0, ParseDuration)
	d.ConnectKeepalive = get(r, p+"_CONNECT_KEEPALIVE", 0, ParseDuration)
	d.AcceptUserTO = get(r, p+"_ACCEPT_USER_TIMEOUT", 0, ParseDuration)
	d.ConnectUserTO = get(r, p+"_CONNECT_USER_TIMEOUT", 0, ParseDuration)
	d.HTTPQueue = r.queue(p+"_HTTP_QUEUE", d.HTTPQueue)
	d.MaxInFlight = get(r, p+"_MAX_IN_FLIGHT", 100000, parseCount)
	d.PoolIdle = get(r, p+"_HTTP1_CONNECTION_POOL_IDLE_TIMEOUT", 3*time.Second, ParseDuration)
	d.Backoff = r.backoff(p+"_CONNECT_EXP_BACKOFF", d.Backoff)
	d.Server = r.server(p+"_SERVER_HTTP2", w)
	d.Backlog = get(r, p+"_TCP_LISTEN_BACKLOG", 0, parseUint32)
	return d
}

// queue's failfast timeout does not carry the word QUEUE in its name.
func (r *reader) queue(p string, q Queue) Queue {
	return Queue{
		Capacity: get(r, p+"_CAPACITY", q.Capacity, parseCount),
		Failfast: get(r, strings.TrimSuffix(p, "_QUEUE")+"_FAILFAST_TIMEOUT", q.Failfast, ParseDuration),
	}
}

func (r *reader) backoff(p string, b Backoff) Backoff {
	if r.has(p+"_MIN") != r.has(p+"_MAX") || r.has(p+"_JITTER") && !r.has(p+"_MIN") {
		r.fail(p, "MIN and MAX must be set together, and JITTER only beside them")
		return b
	}
	b.Min = get(r, p+"_MIN", b.Min, ParseDuration)
	b.Max = get(r, p+"_MAX", b.Max, ParseDuration)
	b.Jitter = get(r, p+"_JITTER", b.Jitter, parseJitter)
	if b.Min <= 0 || b.Max < b.Min {
		r.fail(p, "want 0 < MIN <= MAX, got %v and %v", b.Min, b.Max)
	}
	return b
}

func (r *reader) server(p string, w Windows) Server {
	s := Server{
		Windows:              w,
		AdaptiveFlowControl:  get(r, p+"_ADAPTIVE_FLOW_CONTROL", false, ParseBool),
		MaxConcurrentStreams: get(r, p+"_MAX_CONCURRENT_STREAMS", 0, parseUint32),
		MaxFrameSize:         get(r, p+"_MAX_FRAME_SIZE", 0, parseUint32),
		MaxHeaderListSize:    get(r, p+"_MAX_HEADER_LIST_SIZE", 0, parseUint32),
		MaxConnectionAge:     get(r, p+"_MAX_CONNECTION_AGE", 0, ParseDuration),
		MaxPendingResets:     get(r, p+"_MAX_PENDING_ACCEPT_RESET_STREAMS", 0, parseUint32),
		MaxSendBuffer:        get(r, p+"_MAX_SEND_BUF_SIZE", 0, parseUint32),
	}
	stream := get(r, p+"_INITIAL_STREAM_WINDOW_SIZE", 0, parseUint32)
	conn := get(r, p+"_INITIAL_CONNECTION_WINDOW_SIZE", 0, parseUint32)
	if stream > 0 && conn > 0 { // one alone is ignored
		s.Windows = Windows{stream, conn}
	}
	interval := get(r, p+"_KEEP_ALIVE_INTERVAL", 0, ParseDuration)
	timeout := get(r, p+"_KEEP_ALIVE_TIMEOUT", 0, ParseDuration)
	if interval > 0 && timeout > 0 {
		s.KeepaliveInterval, s.KeepaliveTimeout = interval, timeout
	}
	return s
}
