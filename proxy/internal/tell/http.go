package tell

import (
	"strconv"
	"strings"
	"time"
)

// HTTP counts the requests of one set of labels.
type HTTP struct {
	m        *Metrics
	labels   Labels
	requests *Counter

	ends Bound[End, *ended]
}

// An End is how a request ended. All fields come from bounded sets. The zero value
// is a request that nobody waited for, which has no response to count.
type End struct {
	Status  int    // of the response; 0 if there was none
	GRPC    string // grpc-status as text; "" if the request is not gRPC
	Error   string // why the stream did not end properly: Timeout, Unclassified, or what Reset says; mostly ""
	Success bool   // the classification
}

// Errors of streams (spec/proxy.md §6.7). What could not be connected to is an
// answer, 502 or 504, and no error.
const (
	Timeout      = "timeout"
	Unclassified = "unclassified"
)

type ended struct {
	total   *Counter
	latency *Histogram
}

// HTTP binds request_total, response_total and response_latency_ms to the labels.
func (m *Metrics) HTTP(l Labels) *HTTP {
	return &HTTP{m: m, labels: l, requests: m.Counter(RequestTotal, l)}
}

// Start counts a request. The caller calls End once on what it returns.
func (h *HTTP) Start() Call {
	h.requests.Inc()
	return Call{h}
}

// A Call is one request in flight.
type Call struct{ h *HTTP }

// End counts the response, when its last byte (or trailer) has been sent, and how
// long that took since the request's head: the caller has looked at a clock anyway.
func (c Call) End(e End, took time.Duration) {
	if c.h == nil || e.Status == 0 && e.Error == "" {
		return
	}
	b := c.h.bound(e)
	b.total.Inc()
	b.latency.Observe(float64(took) / float64(time.Millisecond))
}

func (h *HTTP) bound(e End) *ended {
	e = e.bounded()
	if b, ok := h.ends.Get(e); ok {
		return b
	}
	e.Error = strings.Clone(e.Error)
	l := h.labels
	if e.Status != 0 {
		l = l.With("status_code", strconv.Itoa(e.Status))
	}
	class := "failure"
	if e.Success {
		class = "success"
	}
	full := l.With("classification", class)
	if e.GRPC != "" {
		full = full.With("grpc_status", e.GRPC)
	}
	if e.Error != "" {
		full = full.With("error", e.Error)
	}
	return h.ends.Put(e, &ended{h.m.Counter(ResponseTotal, full), h.m.Histogram(ResponseLatency, l)})
}

// codes are the gRPC statuses that there are.
var codes = [...]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"}

// Code is a gRPC status as a label: one of those that there are, UNKNOWN for what a
// peer has made up, and "" for "". It does not keep the argument.
func Code(status string) string {
	if status == "" {
		return ""
	}
	return codes[known(status)]
}

// known is the number of a gRPC status, UNKNOWN's for what is none.
func known(status string) int {
	if n, err := strconv.ParseUint(status, 10, 8); err == nil && n < uint64(len(codes)) {
		return int(n)
	}
	return 2
}

// names are what the families of routes call the codes.
var names = [len(codes)]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
	"FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
}

// CodeName is a gRPC status as the families of routes label it; no status is
// UNKNOWN, as is what a peer has made up.
func CodeName(status string) string { return names[known(status)] }

// bounded makes labels of what a peer may have made up.
func (e End) bounded() End {
	if e.Status < 0 || e.Status > 999 {
		e.Status = 0
	}
	e.GRPC = Code(e.GRPC)
	return e
}
