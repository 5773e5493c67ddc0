package tell

// Families of ServiceProfiles' routes: of requests, and of the tries of them.
var (
	RouteRequests        = fading(counter("route_request_total", "Total count of HTTP requests"))
	RouteResponses       = fading(counter("route_response_total", "Total count of HTTP responses"))
	RouteLatency         = fading(histogram("route_response_latency_ms", "Elapsed times between a request's headers being received and its response stream completing", latencyMS))
	RouteActualRequests  = fading(counter("route_actual_request_total", "Total count of HTTP requests, tries included"))
	RouteActualResponses = fading(counter("route_actual_response_total", "Total count of HTTP responses, tries included"))
	RouteRetryable       = fading(counter("route_retryable_total", "Total count of retryable HTTP responses"))
)

// Route labels the requests of a ServiceProfile's route: the direction, the
// service that they are for, and what the route says, as rt_ labels.
func Route(direction, dst string, route Labels) Labels {
	out := Labels{{"direction", direction}, {"dst", dst}}
	for _, l := range route {
		out = append(out, Label{"rt_" + clean(l.Name), l.Value})
	}
	return out
}

// Retries are the families that count what was sent once more.
type Retries struct{ Requests, Successes, Limit, Overflow Family }

// Retries of requests, of HTTPRoutes and of GRPCRoutes.
var (
	HTTPRetries = Retries{OutboundHTTPRetries, OutboundHTTPRetrySuccesses, OutboundHTTPRetryLimit, OutboundHTTPRetryOverflow}
	GRPCRetries = Retries{
		counter("outbound_grpc_route_retry_requests_total", OutboundHTTPRetries.Help),
		counter("outbound_grpc_route_retry_successes_total", OutboundHTTPRetrySuccesses.Help),
		counter("outbound_grpc_route_retry_limit_exceeded_total", OutboundHTTPRetryLimit.Help),
		counter("outbound_grpc_route_retry_overflow_total", OutboundHTTPRetryOverflow.Help),
	}
)
