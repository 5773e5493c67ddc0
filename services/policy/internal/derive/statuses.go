package derive

import (
	"fmt"
	"strconv"
	"strings"
)

// StatusRange is a range of HTTP status codes, both ends included.
type StatusRange struct{ First, Last uint32 }

// maxConditions bounds a list of retry conditions: there are 500 codes.
const maxConditions = 512

// ParseStatuses reads a list of 5xx, gateway-error, N and N-M. The whole list
// is refused if one entry is wrong, so that nothing is retried by accident.
func ParseStatuses(list string) ([]StatusRange, error) {
	entries, err := conditions(list)
	if err != nil {
		return nil, err
	}
	out := make([]StatusRange, 0, len(entries))
	for _, entry := range entries {
		r, err := parseStatus(entry)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func parseStatus(entry string) (StatusRange, error) {
	switch strings.ToLower(entry) {
	case "5xx":
		return StatusRange{500, 599}, nil
	case "gateway-error":
		return StatusRange{502, 504}, nil
	}
	low, high, isRange := strings.Cut(entry, "-")
	if !isRange {
		high = low
	}
	first, ok := statusCode(low)
	last, ok2 := statusCode(high)
	if !ok || !ok2 || first > last {
		return StatusRange{}, fmt.Errorf("%q is not 5xx, gateway-error, a status from 100 to 599, or a range of them", entry)
	}
	return StatusRange{first, last}, nil
}

func statusCode(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n >= 100 && n < 600
}

// GRPCStatus is a set of retryable gRPC codes, in the names of the annotation.
type GRPCStatus struct {
	Cancelled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable bool
}

// ParseGRPCStatuses reads a list of cancelled, deadline-exceeded, internal,
// resource-exhausted and unavailable.
func ParseGRPCStatuses(list string) (GRPCStatus, error) {
	entries, err := conditions(list)
	if err != nil {
		return GRPCStatus{}, err
	}
	var out GRPCStatus
	for _, entry := range entries {
		switch strings.ToLower(entry) {
		case "cancelled":
			out.Cancelled = true
		case "deadline-exceeded":
			out.DeadlineExceeded = true
		case "internal":
			out.Internal = true
		case "resource-exhausted":
			out.ResourceExhausted = true
		case "unavailable":
			out.Unavailable = true
		default:
			return GRPCStatus{}, fmt.Errorf("%q is not a gRPC code that may be retried", entry)
		}
	}
	return out, nil
}

func conditions(list string) ([]string, error) {
	entries := strings.Split(list, ",")
	if len(entries) > maxConditions {
		return nil, fmt.Errorf("more than %d conditions", maxConditions)
	}
	for i := range entries {
		entries[i] = strings.TrimSpace(entries[i])
	}
	return entries, nil
}
