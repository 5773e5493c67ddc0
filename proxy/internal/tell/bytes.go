package tell

import "time"

// RouteFamilies are those of connections that a route carries as bytes.
type RouteFamilies struct{ Open, Close Family }

// The families of connections that nobody looks into, and of those that are routed
// by the name in their TLS handshake.
var (
	TCPRoute = RouteFamilies{
		counter("outbound_tcp_route_open_total", "The total number of connections opened"),
		counter("outbound_tcp_route_close_total", "The total number of connections closed"),
	}
	TLSRoute = RouteFamilies{
		counter("outbound_tls_route_open_total", TCPRoute.Open.Help),
		counter("outbound_tls_route_close_total", TCPRoute.Close.Help),
	}
)

// An Ending is why a route's connection was closed.
type Ending uint8

// The endings.
const (
	Well Ending = iota
	Forbidden
	InvalidBackend
	InvalidPolicy
	Unexpected
)

var endings = [...]string{"", "forbidden", "invalid_backend", "invalid_policy", "unexpected"}

// Connections counts the connections of one route.
type Connections struct {
	opened *Counter
	closed [len(endings)]*Counter
}

// Connections binds a route's families: all endings are there from the start.
func (m *Metrics) Connections(f RouteFamilies, l Labels) *Connections {
	c := &Connections{opened: m.Counter(f.Open, l)}
	for i, why := range endings {
		c.closed[i] = m.Counter(f.Close, l.With("error", why))
	}
	return c
}

// Opened counts a connection.
func (c *Connections) Opened() { c.opened.Inc() }

// Closed counts its end.
func (c *Connections) Closed(why Ending) { c.closed[why].Inc() }

// results are what HTTP detection may find out.
var results = []string{"not_http", "http/1", "http/2", "read_timeout", "error"}

// Detections counts what connections turn out to carry.
type Detections struct {
	time    *Histogram
	results map[string]*Counter
}

// Detections binds a family of results and that of how long they took: all results
// are there from the start.
func (m *Metrics) Detections(found, took Family, l Labels) *Detections {
	d := &Detections{m.Histogram(took, l), make(map[string]*Counter, len(results))}
	for _, r := range results {
		d.results[r] = m.Counter(found, l.With("result", r))
	}
	return d
}

// Found counts one result.
func (d *Detections) Found(result string, took time.Duration) {
	d.results[result].Inc()
	d.time.Observe(took.Seconds())
}
