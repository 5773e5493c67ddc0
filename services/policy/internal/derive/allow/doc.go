// Package allow decides what a workload accepts on one of its ports: the
// inbound answer. It is pure; whatever cannot be resolved authorises nothing.
//
// The rows are digested once, when they arrive (NewTemplate, Resolve), so that
// an answer costs a selector match and some appends. Digests never change.
package allow
