// Package promises proves on a real Kubernetes what the README promises: Weft is
// installed by its charts, an application is meshed and loaded, and then things are
// rotated, scaled, restarted and broken, while no request may fail. Every promise
// leaves the cluster as it found it.
package promises
