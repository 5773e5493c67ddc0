// Package bus carries the mesh's log: one writer turns a cluster into rows,
// every other process holds a copy of them and may lose it.
//
// The log of a cluster is a sequence of cuts, numbered by epoch and sequence.
// A cut is a set of rows put or removed together; a reader that applies whole
// cuts in order always holds a state that the writer once held. The transport
// underneath (NATS, or memory in package bustest) may lose, repeat or reorder
// messages and may be wiped at any time: the log repairs itself from any synced
// copy and compares digests every second.
//
// The one rule for users: what a Cut hands out is immutable. Keep the bytes as
// long as you like, never change them.
package bus
