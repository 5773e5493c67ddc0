// Package inject gives Kubernetes manifests their proxy, and takes it out again.
//
// It holds the injector's rules for those who have manifests instead of
// admission requests: the command line. An object comes in as decoded JSON of
// any kind (a workload, a CronJob, a List, a Namespace, a Service, or anything
// else, which passes unchanged), and a new object comes out with a report on
// each object in it. It is pure: what was handed in is never changed, and
// nothing is read or written.
package inject
