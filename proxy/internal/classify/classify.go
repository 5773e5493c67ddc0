// Package classify says what an answer means: whether it is a failure, and when
// the server asks to be left alone. It is pure.
package classify

import (
	"slices"
)

// GRPCFailure reports whether a status, as grpc-status has it, is a failure of the
// server: UNKNOWN, DEADLINE_EXCEEDED, PERMISSION_DENIED, INTERNAL, UNAVAILABLE and
// DATA_LOSS (spec/proxy.md §6.7). No status is none.
func GRPCFailure(status string) bool {
	switch status {
	case "2", "4", "7", "13", "14", "15":
		return true
	}
	return false
}

// Success reports whether an answer is none of a failure. grpc says that the
// request was gRPC's, status is then grpc-status, "" if it never came.
func Success(http int, grpc bool, status string) bool {
	if grpc && (status != "" || http < 500) {
		return !GRPCFailure(status)
	}
	return http < 500
}

// Classes are a ServiceProfile's classes of answers, in their order.
type Classes []Class

// A Class is a set of answers.
type Class struct {
	Match   Match
	Failure bool
}

// A Match is a condition on an answer. Exactly one field is set; Low and High
// belong together.
type Match struct {
	All, Any  []Match
	Not       *Match
	Low, High int // of the status, both inclusive
}

// Success reports whether an answer is a success: the first class that has it
// says, and where none does, grpc-status if there is one, else the status.
func (c Classes) Success(http int, status string) bool {
	for i := range c {
		if c[i].Match.takes(http) {
			return !c[i].Failure
		}
	}
	return Success(http, status != "", status)
}

func (m *Match) takes(http int) bool {
	switch {
	case m.High > 0:
		return m.Low <= http && http <= m.High
	case m.Not != nil:
		return !m.Not.takes(http)
	case m.Any != nil:
		return slices.ContainsFunc(m.Any, func(one Match) bool { return one.takes(http) })
	}
	return !slices.ContainsFunc(m.All, func(one Match) bool { return !one.takes(http) })
}
