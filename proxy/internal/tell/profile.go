package tell

// Families of ServiceProfiles' routes: of requests, and of the tries of them.
var (
	RouteRequests        = counter("route_request_total", "Total count of HTTP requests")
	RouteResponses       = counter("route_response_total", "Total count of HTTP responses")
	RouteLatency         = histogram("route_response_latency_ms", "Elapsed times between a request's headers being received and its response stream completing", latencyMS)
	RouteActualRequests  = counter("route_actual_request_total", "Total count of HTTP requests, tries included")
	RouteActualResponses = counter("route_actual_response_total", "Total count of HTTP responses, tries included")
	RouteRetryable       = counter("route_retryable_total", "Total count of retryable HTTP responses")
)
