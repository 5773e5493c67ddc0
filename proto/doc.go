// Package proto is the home of the bus's wire format, and of the API that stands
// beside Linkerd's: the .proto files by hand in weft/, the Go made from them in
// gen/. It imports nothing of ours.
package proto
