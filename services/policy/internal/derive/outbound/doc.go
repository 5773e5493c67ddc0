// Package outbound decides how a client's proxy reaches a target: the outbound
// answer. It is pure.
//
// A Service row is digested once, when it arrives (NewService); an answer is
// then built from the digest and a port. Digests never change.
package outbound
