// Package dir reads Kubernetes objects from directories of ordinary manifests,
// for a mesh without Kubernetes: a demo, a test, a handful of machines.
//
// A file is read again when it changes. One that can't be read keeps what it
// held before and is named in Trouble: nothing is ever taken for gone because it
// was unreadable. There is one writer and it always leads, so two watchers with
// this source must not share a bus.
package dir
