package tell

// Families of requests to the control plane.
var (
	ControlRequest  = fading(counter("control_request_total", "Total count of HTTP requests to the control plane."))
	ControlResponse = fading(counter("control_response_total", "Total count of HTTP responses from the control plane."))
	ControlLatency  = fading(histogram("control_response_latency_ms", "Elapsed times between a request to the control plane and the end of its response", latencyMS))
	ControlLookups  = counter("control_dns_resolutions_total", "Lookups of the control plane's names")
)

// Balancer are the families of a set of endpoints, and of the queue before it.
type Balancer struct {
	Size, Updates, Endpoints, Length, Requests, Latency, GateOpen, GateShut, GateOpened, GateShutAt, GateTimeout Family
}

// Operations are those that the updates of endpoints are counted by.
var Operations = []string{"Reset", "Add", "Remove", "DoesNotExist"}

// ControlBalancer are those of a control-plane client: identity, destination,
// policy or trace_collector.
func ControlBalancer(client string) Balancer {
	if client == "trace_collector" {
		return balancerFamilies("opentelemetry_balancer_")
	}
	return balancerFamilies("control_" + client + "_balancer_")
}

// OutboundBalancer are those of a backend's endpoints, for http, tcp or tls.
func OutboundBalancer(protocol string) Balancer {
	return balancerFamilies("outbound_" + protocol + "_balancer_")
}

func balancerFamilies(prefix string) Balancer {
	return Balancer{
		Size:        gauge(prefix+"p2c_endpoints", "The number of endpoints currently in the balancer"),
		Updates:     counter(prefix+"p2c_updates_total", "Balancer updates by operation"),
		Endpoints:   gauge(prefix+"endpoints", "The number of endpoints by whether they take requests"),
		Length:      gauge(prefix+"queue_length", "The number of requests that wait for an endpoint"),
		Requests:    counter(prefix+"queue_requests_total", "The number of requests for which an endpoint was asked"),
		Latency:     histogram(prefix+"queue_latency_seconds", "How long requests have waited for an endpoint", []float64{0.0005, 0.005, 0.05, 0.5, 1, 3}),
		GateOpen:    counter(prefix+"queue_gate_open_total", "How often requests could be sent again"),
		GateShut:    counter(prefix+"queue_gate_shut_total", "How often requests stopped to wait"),
		GateOpened:  gauge(prefix+"queue_gate_open_time_seconds", "Unix time since when requests can be sent; 0 if they cannot"),
		GateShutAt:  gauge(prefix+"queue_gate_shut_time_seconds", "Unix time since when requests do not wait; 0 if they do"),
		GateTimeout: gauge(prefix+"queue_gate_timeout_seconds", "How long requests wait"),
	}
}

// BindBalancer makes the series that are there before any request or update is, and
// counts the gate as open.
func (m *Metrics) BindBalancer(f Balancer, l Labels) {
	for _, op := range Operations {
		m.Counter(f.Updates, l.With("op", op))
	}
	for _, state := range []string{"ready", "pending"} {
		m.Gauge(f.Endpoints, l.With("endpoint_state", state))
	}
	for _, g := range []Family{f.Size, f.Length, f.GateOpened, f.GateShutAt, f.GateTimeout} {
		m.Gauge(g, l)
	}
	m.Counter(f.Requests, l)
	m.Histogram(f.Latency, l)
	m.Counter(f.GateOpen, l).Inc()
	m.Counter(f.GateShut, l)
}
