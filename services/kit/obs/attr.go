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

// Addr is a network address.
func Addr(a string) slog.Attr { return slog.String("addr", a) }

// Path is a file's path.
func Path(p string) slog.Attr { return slog.String("path", p) }

// Object is a Kubernetes object, as kind/namespace/name.
func Object(key string) slog.Attr { return slog.String("object", key) }

// Identity is a TLS identity (a DNS-like name).
func Identity(name string) slog.Attr { return slog.String("identity", name) }

// Cluster is a cluster's name.
func Cluster(name string) slog.Attr { return slog.String("cluster", name) }

// Table is a table of the bus.
func Table(name string) slog.Attr { return slog.String("table", name) }

// Epoch is the reign of one writer of the log.
func Epoch(n uint64) slog.Attr { return slog.Uint64("epoch", n) }

// Seq is a batch's place within its epoch.
func Seq(n uint64) slog.Attr { return slog.Uint64("seq", n) }

// Count is how many.
func Count(n int) slog.Attr { return slog.Int("count", n) }

// Reason says why, in a bounded set of words or a sentence from a person's input.
func Reason(text string) slog.Attr { return slog.String("reason", text) }

// Took is how long something took.
func Took(d time.Duration) slog.Attr { return slog.Duration("took", d) }
