package tell

// Families of requests to the control plane.
var (
	ControlRequest  = counter("control_request_total", "Total count of HTTP requests to the control plane.")
	ControlResponse = counter("control_response_total", "Total count of HTTP responses from the control plane.")
	ControlLatency  = histogram("control_response_latency_ms", "Elapsed times between a request to the control plane and the end of its response", latencyMS)
	ControlLookups  = counter("control_dns_resolutions_total", "Lookups of the control plane's names")
)

// Balancer are the families of one set of endpoints.
type Balancer struct{ Size, Updates Family }

// ControlBalancer are those of a control-plane client: identity, destination,
// policy or trace_collector.
func ControlBalancer(client string) Balancer {
	prefix := "control_" + client
	if client == "trace_collector" {
		prefix = "opentelemetry"
	}
	return Balancer{
		Size:    gauge(prefix+"_balancer_p2c_endpoints", "The number of endpoints currently in the balancer"),
		Updates: counter(prefix+"_balancer_p2c_updates_total", "Balancer updates by operation"),
	}
}

// OutboundBalancer are those of a backend's endpoints, for http, tcp or tls.
func OutboundBalancer(protocol string) FullBalancer {
	prefix := "outbound_" + protocol + "_balancer_"
	return FullBalancer{
		Balancer: Balancer{
			Size:    gauge(prefix+"p2c_endpoints", "The number of endpoints currently in the balancer"),
			Updates: counter(prefix+"p2c_updates_total", "Balancer updates by operation"),
		},
		Endpoints:   gauge(prefix+"endpoints", "The number of endpoints by whether they take requests"),
		Length:      gauge(prefix+"queue_length", "The number of requests that wait for an endpoint"),
		Requests:    counter(prefix+"queue_requests_total", "The number of requests that have waited for an endpoint"),
		Latency:     histogram(prefix+"queue_latency_seconds", "How long requests have waited for an endpoint", []float64{0.0005, 0.005, 0.05, 0.5, 1, 3}),
		GateOpen:    counter(prefix+"queue_gate_open_total", "How often requests could be sent again"),
		GateShut:    counter(prefix+"queue_gate_shut_total", "How often requests stopped to wait"),
		GateOpened:  gauge(prefix+"queue_gate_open_time_seconds", "Unix time since when requests can be sent; 0 if they cannot"),
		GateShutAt:  gauge(prefix+"queue_gate_shut_time_seconds", "Unix time since when requests do not wait; 0 if they do"),
		GateTimeout: gauge(prefix+"queue_gate_timeout_seconds", "How long requests wait"),
	}
}

// FullBalancer are the families of a balancer whose requests wait in a queue.
type FullBalancer struct {
	Balancer
	Endpoints, Length, Requests, Latency, GateOpen, GateShut, GateOpened, GateShutAt, GateTimeout Family
}
