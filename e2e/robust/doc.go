// Package robust breaks a mesh of real processes on purpose, for as long as one
// likes, and judges afterwards what its clients were told: two watchers that
// share a lease, two replicas of each front-end, three NATS servers, and between
// each process and each server a wire that can be cut, stalled or slowed.
//
//	go test ./robust                                       # a smoke test of some seconds
//	go test ./robust -v -args -for 5m -seed 42             # as long as that; the seed is printed
//	go test ./robust -v -args -for 5m -lease 15s           # with the lease that is usual
//	go test ./robust -v -args -nats docker                 # the servers in containers
package robust
