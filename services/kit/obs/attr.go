package obs

import (
	"log/slog"
	"time"
)

// The keys of log attributes. They are functions so that they can't be
// misspelt and one idea has one key in every service.

// Service is the key of a mesh service, or the name of one of our own.
func Service(key string) slog.Attr { return slog.String("service", key) }

// Error is what went wrong; a nil error is an empty attribute, which slog drops.
func Error(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.String("error", err.Error())
}

// Part is a part of this process.
func Part(name string) slog.Attr { return slog.String("part", name) }

// Addr is a network address.
func Addr(a string) slog.Attr { return slog.String("addr", a) }

// Peer is the other end of a connection.
func Peer(a string) slog.Attr { return slog.String("peer", a) }

// Path is a file's path.
func Path(p string) slog.Attr { return slog.String("path", p) }

// Object is a Kubernetes object, as kind/namespace/name.
func Object(key string) slog.Attr { return slog.String("object", key) }

// Namespace is a Kubernetes namespace.
func Namespace(name string) slog.Attr { return slog.String("namespace", name) }

// Workload is the key of a pod or external workload.
func Workload(key string) slog.Attr { return slog.String("workload", key) }

// Endpoint is the address of an endpoint.
func Endpoint(addr string) slog.Attr { return slog.String("endpoint", addr) }

// Identity is a TLS identity (a DNS-like name).
func Identity(name string) slog.Attr { return slog.String("identity", name) }

// Cluster is a cluster's name.
func Cluster(name string) slog.Attr { return slog.String("cluster", name) }

// Instance is one run of a process.
func Instance(id string) slog.Attr { return slog.String("instance", id) }

// Table is a table of the bus.
func Table(name string) slog.Attr { return slog.String("table", name) }

// Epoch is the reign of one writer of the log.
func Epoch(n uint64) slog.Attr { return slog.Uint64("epoch", n) }

// Seq is a batch's place within its epoch.
func Seq(n uint64) slog.Attr { return slog.Uint64("seq", n) }

// Count is how many.
func Count(n int) slog.Attr { return slog.Int("count", n) }

// Bytes is a size in bytes.
func Bytes(n int64) slog.Attr { return slog.Int64("bytes", n) }

// Reason says why, in a bounded set of words or a sentence from a person's input.
func Reason(text string) slog.Attr { return slog.String("reason", text) }

// Method is a gRPC or HTTP method.
func Method(name string) slog.Attr { return slog.String("method", name) }

// Code is a gRPC or HTTP status code.
func Code(name string) slog.Attr { return slog.String("code", name) }

// Age is how old something is.
func Age(d time.Duration) slog.Attr { return slog.Duration("age", d) }

// Took is how long something took.
func Took(d time.Duration) slog.Attr { return slog.Duration("took", d) }

// Version is a build's version.
func Version(v string) slog.Attr { return slog.String("version", v) }
