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
