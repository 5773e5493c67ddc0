package tell

// Families of what watches the proxy itself.
var (
	SpanStreams      = counter("opentelemetry_span_export_streams", "Total count of exports of spans that were begun")
	SpanRequests     = counter("opentelemetry_span_export_requests", "Total count of exports that the collector has taken")
	SpanExports      = counter("opentelemetry_span_exports", "Total count of spans exported")
	SpansDropped     = counter("weft_spans_dropped_total", "Spans for which there was no room while the collector was slow")
	AccessLogDropped = counter("weft_access_log_dropped_total", "Lines of the access log for which there was no room")
)
