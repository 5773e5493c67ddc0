package tell

// Kind is what a family's series are.
type Kind uint8

// The kinds of families.
const (
	KindCounter Kind = iota
	KindGauge
	KindHistogram
)

// A Family is a metric's name and what is common to its series. Families are
// values of this package; a name has one kind and one help text.
type Family struct {
	Name    string
	Help    string
	Kind    Kind
	Buckets []float64 // of a histogram, rising, +Inf left out
	Fades   bool      // a series is dropped when it is idle, however few there are
}

// Latency buckets of the families that Linkerd has had from the start, in ms.
var latencyMS = []float64{
	1, 2, 3, 4, 5, 10, 20, 30, 40, 50, 100, 200, 300, 400, 500, 1000, 2000, 3000, 4000, 5000,
	10000, 20000, 30000, 40000, 50000,
}

// Families of both directions.
var (
	RequestTotal    = fading(counter("request_total", "Total count of HTTP requests."))
	ResponseTotal   = fading(counter("response_total", "Total count of HTTP responses."))
	ResponseLatency = fading(histogram("response_latency_ms", "Elapsed times between a request's headers being received and its response stream completing", latencyMS))

	TCPOpenTotal  = fading(counter("tcp_open_total", "Total count of opened connections"))
	TCPOpen       = fading(gauge("tcp_open_connections", "Number of currently-open connections"))
	TCPCloseTotal = fading(counter("tcp_close_total", "Total count of closed connections"))
	TCPReadBytes  = fading(counter("tcp_read_bytes_total", "Total count of bytes read from peers"))
	TCPWriteBytes = fading(counter("tcp_write_bytes_total", "Total count of bytes written to peers"))
)

// Inbound families.
var (
	InboundHTTPAllow     = fading(counter("inbound_http_authz_allow_total", "The total number of inbound HTTP requests that were authorized"))
	InboundHTTPDeny      = fading(counter("inbound_http_authz_deny_total", "The total number of inbound HTTP requests that could not be processed due to being denied"))
	InboundHTTPNoRoute   = fading(counter("inbound_http_route_not_found_total", "The total number of inbound HTTP requests that could not be associated with a route"))
	InboundHTTPRateLimit = fading(counter("inbound_http_local_ratelimit_total", "The total number of inbound HTTP requests that could not be processed due to being rate-limited"))
	InboundTCPAllow      = fading(counter("inbound_tcp_authz_allow_total", "The total number of inbound TCP connections that were authorized"))
	InboundTCPDeny       = fading(counter("inbound_tcp_authz_deny_total", "The total number of inbound TCP connections that were denied"))
	InboundTCPTerminate  = fading(counter("inbound_tcp_authz_terminate_total", "The total number of inbound TCP connections that were terminated due to an authorization change"))
	InboundHTTPErrors    = fading(counter("inbound_http_errors_total", "The total number of inbound HTTP requests that could not be processed due to a proxy error"))
	InboundTCPErrors     = fading(counter("inbound_tcp_errors_total", "The total number of inbound TCP connections that could not be processed due to a proxy error"))
	InboundHeaders       = counter("inbound_tcp_transport_header_connections_total", "TCP connections with transport headers")
	InboundDetect        = counter("inbound_tcp_detect_http_results_total", "HTTP detections by result")
	InboundDetectTime    = histogram("inbound_tcp_detect_http_duration_seconds", "The time taken for HTTP detection", []float64{0.001, 0.1})

	InboundHTTPRequests = counter("inbound_http_requests_total", "The number of HTTP requests received")
	InboundHTTPStatuses = counter("inbound_http_statuses_total", "Completed responses by status")
	InboundHTTPTime     = histogram("inbound_http_request_duration_seconds", "The time between request initialization and response completion", []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 10})
	InboundGRPCRequests = counter("inbound_grpc_requests_total", "The number of gRPC requests received")
	InboundGRPCStatuses = counter("inbound_grpc_statuses_total", "Completed responses by status")
	InboundGRPCTime     = histogram("inbound_grpc_request_duration_seconds", "The time between request initialization and response completion", InboundHTTPTime.Buckets)

	InboundHTTPResponseTime   = histogram("inbound_http_response_duration_seconds", "The time between request completion and response completion", routeTime)
	InboundHTTPRequestFrames  = histogram("inbound_http_request_frame_size_bytes", "The sizes of the pieces of request bodies", frameSize)
	InboundHTTPResponseFrames = histogram("inbound_http_response_frame_size_bytes", "The sizes of the pieces of response bodies", frameSize)
	InboundGRPCResponseTime   = histogram("inbound_grpc_response_duration_seconds", "The time between request completion and response completion", routeTime)
	InboundGRPCRequestFrames  = histogram("inbound_grpc_request_frame_size_bytes", "The sizes of the pieces of request bodies", frameSize)
	InboundGRPCResponseFrames = histogram("inbound_grpc_response_frame_size_bytes", "The sizes of the pieces of response bodies", frameSize)
)

// Outbound families.
var (
	OutboundHTTPErrors = fading(counter("outbound_http_errors_total", "The total number of outbound HTTP requests that could not be processed due to a proxy error"))
	OutboundTCPErrors  = fading(counter("outbound_tcp_errors_total", "The total number of outbound TCP connections that could not be processed due to a proxy error"))
	OutboundProtocols  = counter("outbound_tcp_protocol_connections_total", "Outbound TCP connections by protocol configuration")
	OutboundDetect     = counter("outbound_tcp_detect_http_results_total", "HTTP detections by result")
	OutboundDetectTime = histogram("outbound_tcp_detect_http_duration_seconds", "The time taken for HTTP detection", []float64{0.001, 0.1})

	OutboundHTTPRouteTime     = histogram("outbound_http_route_request_duration_seconds", "The time between request initialization and response completion", routeTime)
	OutboundHTTPRouteStatuses = counter("outbound_http_route_request_statuses_total", "Completed request-response streams")
	OutboundGRPCRouteTime     = histogram("outbound_grpc_route_request_duration_seconds", "The time between request initialization and response completion", routeTime)
	OutboundGRPCRouteStatuses = counter("outbound_grpc_route_request_statuses_total", "Completed request-response streams")

	OutboundHTTPRouteFrames   = histogram("outbound_http_route_request_frame_size_bytes", "The sizes of the pieces of request bodies", frameSize)
	OutboundGRPCRouteFrames   = histogram("outbound_grpc_route_request_frame_size_bytes", "The sizes of the pieces of request bodies", frameSize)
	OutboundHTTPBackendFrames = histogram("outbound_http_route_backend_response_frame_size_bytes", "The sizes of the pieces of response bodies", frameSize)
	OutboundGRPCBackendFrames = histogram("outbound_grpc_route_backend_response_frame_size_bytes", "The sizes of the pieces of response bodies", frameSize)

	OutboundHTTPBackendRequests = counter("outbound_http_route_backend_requests_total", "The total number of requests dispatched")
	OutboundHTTPBackendTime     = histogram("outbound_http_route_backend_response_duration_seconds", "The time between request completion and response completion", backendTime)
	OutboundHTTPBackendStatuses = counter("outbound_http_route_backend_response_statuses_total", "Completed responses")
	OutboundGRPCBackendRequests = counter("outbound_grpc_route_backend_requests_total", "The total number of requests dispatched")
	OutboundGRPCBackendTime     = histogram("outbound_grpc_route_backend_response_duration_seconds", "The time between request completion and response completion", backendTime)
	OutboundGRPCBackendStatuses = counter("outbound_grpc_route_backend_response_statuses_total", "Completed responses")

	OutboundHTTPRetries        = counter("outbound_http_route_retry_requests_total", "Retry requests emitted")
	OutboundHTTPRetrySuccesses = counter("outbound_http_route_retry_successes_total", "Successful responses to retry requests")
	OutboundHTTPRetryLimit     = counter("outbound_http_route_retry_limit_exceeded_total", "Retryable requests not sent due to the retry limit")
	OutboundHTTPRetryOverflow  = counter("outbound_http_route_retry_overflow_total", "Retryable requests not sent due to circuit breakers")
)

// TransferCost are the bytes to and from endpoints.
var TransferCost = counter("outbound_tcp_transfer_cost_bytes_total", "The total amount of data transferred to and from endpoints, by whether they are in this zone")

var (
	routeTime   = []float64{0.05, 0.5, 1, 10}
	backendTime = []float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 10}
	frameSize   = []float64{128, 1024, 10240}
)

// fading are the families that linkerd2-proxy, too, drops idle series of (spec/proxy.md
// §15.2).
func fading(f Family) Family { f.Fades = true; return f }

func counter(name, help string) Family { return Family{Name: name, Help: help, Kind: KindCounter} }
func gauge(name, help string) Family   { return Family{Name: name, Help: help, Kind: KindGauge} }
func histogram(name, help string, buckets []float64) Family {
	return Family{Name: name, Help: help, Kind: KindHistogram, Buckets: buckets}
}
