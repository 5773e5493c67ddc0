// Package shape turns Kubernetes objects into the rows of the log.
//
// It is pure: objects in, rows out; no clock, no log, no I/O, and it never
// changes the object it is given. A row holds exactly the fields that some
// output reads (proto/weft/bus/v1/rows.proto), normalised, so that a change
// nobody reads gives equal bytes. An object that makes no sense gives a
// *Problem and no rows; the caller keeps what the object was before.
package shape
