// Package status writes to Kubernetes what policy wants the statuses of routes,
// egress networks and rate limits to say.
//
// It asks over the bus, compares with what is written, and patches what differs;
// what other controllers wrote stays. Only the leader writes, with its lease
// checked before each write. What is to be written is decided in merge.go, which
// is pure.
package status
