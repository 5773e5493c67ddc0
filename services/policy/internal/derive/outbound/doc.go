// Package outbound decides how a client's proxy reaches a target: the outbound
// answer. It is pure.
//
// A Service row is digested once, when it arrives (NewService). An answer is
// built of a Parent, a Service or an EgressNetwork with the routes that it has
// accepted, and a Question. It must be one that Linkerd's proxy takes: over one
// value that it cannot read it refuses the whole, so what is broken is left out
// or fails by itself. Digests and answers never change.
package outbound
