// Package external makes EndpointSlices for Services whose selector finds
// ExternalWorkloads, as Linkerd's external-workload endpoints controller does
// (spec/destination-policy.md section 6): Kubernetes makes them of pods only.
//
// What the slices must be is decided in plan.go, which is pure. Only the leader
// writes, with its lease checked before each write.
package external
