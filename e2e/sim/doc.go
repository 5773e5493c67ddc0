// Package sim runs the control plane's own rooms — the watcher's, destination's
// and policy's, from a Kubernetes object to the stream of a proxy — on a bus in
// memory that loses, repeats and reorders, in virtual time. What must hold,
// whatever happens:
//
//	agree:     once faults end, every replica tells every client the truth
//	no ghosts: nobody is told of a pod that is gone
//	forward:   a replica that has taken a pod back never tells of it again
//	closed:    no replica ever tells a proxy to let strangers in where a Server
//	           that was there before its pod denies it
package sim
