package issuer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/kit/obs"
)

// Poll is how often files are compared by content whether or not the kernel
// reported a change; it bounds how long a missed report can matter.
const Poll = 15 * time.Second

// Holder keeps the issuer that is in use.
type Holder struct {
	files Files
	now   func() time.Time
	poll  time.Duration

	tell func(Change)

	current atomic.Pointer[issue.Issuer]
	last    [32]byte // content of the last attempt; only load touches it
	failure string   // of the last attempt; only load touches it
	reloads *prometheus.CounterVec
}

// Change is what a look at the files came to, when it was something new.
type Change struct {
	// Err says why the files are not used; nil means that they are now.
	Err error
	// First is the load before which there was no issuer.
	First bool
}

// New makes a holder; nothing is read before Load or Run. tell is called from
// the goroutine that loads and must not block; nil means nobody is told.
func New(files Files, now func() time.Time, tell func(Change), reg prometheus.Registerer) *Holder {
	if tell == nil {
		tell = func(Change) {}
	}
	h := &Holder{
		files: files, now: now, poll: Poll, tell: tell,
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_identity_issuer_loads_total",
			Help: "New contents of the issuer's files, by result: ok, same (other bytes, nothing new in them) or rejected (the former issuer stays in use).",
		}, []string{"result"}),
	}
	reg.MustRegister(h.reloads,
		// The name is Linkerd's; it is computed when asked for, so that it
		// never shows an issuer that has been replaced.
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "issuer_cert_ttl_seconds",
			Help: "Seconds until the issuer in use expires; 0 until one is loaded.",
		}, h.ttl),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weft_identity_issuer_not_after_seconds",
			Help: "Unix time at which the issuer's chain in use ends; 0 until one is loaded.",
		}, func() float64 {
			if i := h.current.Load(); i != nil {
				return float64(i.NotAfter().Unix())
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weft_identity_trust_anchors_not_after_seconds",
			Help: "Unix time at which the first of the trust anchors in use ends; 0 until they are loaded.",
		}, func() float64 {
			if i := h.current.Load(); i != nil {
				return float64(i.AnchorsNotAfter().Unix())
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "weft_identity_trust_anchors",
			Help: "Trust anchors in use.",
		}, func() float64 {
			if i := h.current.Load(); i != nil {
				return float64(len(i.Anchors))
			}
			return 0
		}))
	return h
}

func (h *Holder) ttl() float64 {
	i := h.current.Load()
	if i == nil {
		return 0
	}
	return i.NotAfter().Sub(h.now()).Seconds()
}

// Current is the issuer in use, nil until one is loaded.
func (h *Holder) Current() *issue.Issuer { return h.current.Load() }

// Ready says whether certificates can be issued.
func (h *Holder) Ready() error {
	i := h.current.Load()
	if i == nil {
		return errors.New("no issuer is loaded")
	}
	return i.Verify(h.now())
}

// Load reads the files once. Unchanged content that was loaded is left alone;
// content that was rejected is judged again, since time may have made it good.
func (h *Holder) Load() error {
	c, err := h.files.read()
	if err != nil {
		return h.reject(err)
	}
	sum := c.hash()
	if sum == h.last && h.failure == "" && h.current.Load() != nil {
		return nil
	}
	next, bad, err := c.parse(h.now())
	if err != nil {
		return h.reject(err)
	}
	before := h.current.Load()
	h.last, h.failure = sum, ""
	// Stored even if nothing is new: a comment or another order of anchors.
	h.current.Store(next)
	if before != nil && before.Equal(next) {
		h.reloads.WithLabelValues("same").Inc()
		return nil
	}
	h.reloads.WithLabelValues("ok").Inc()
	slog.Info("issuer loaded", "subject", next.Chain[0].Subject.String(), "not_after", next.NotAfter(),
		"anchors", len(next.Anchors), "skipped_anchors", bad)
	h.tell(Change{First: before == nil})
	return nil
}

// reject reports a failed attempt once for each new reason: a poll would
// otherwise repeat it for as long as the file is bad.
func (h *Holder) reject(err error) error {
	if text := err.Error(); text != h.failure {
		h.failure = text
		h.reloads.WithLabelValues("rejected").Inc()
		if h.current.Load() != nil {
			slog.Warn("issuer update skipped, the former issuer stays in use", obs.Error(err))
			h.tell(Change{Err: err})
		}
	}
	return err
}

// Run reloads on change until ctx ends: on every report from the kernel about
// the directories, which covers replaced files and the swap of a mounted
// Secret's ..data link, and on every poll.
func (h *Holder) Run(ctx context.Context) error {
	watch, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the issuer: %w", err)
	}
	defer func() { _ = watch.Close() }() // nothing is lost with it
	tick := time.NewTicker(h.poll)
	defer tick.Stop()
	h.watch(watch)
	for {
		// The error has been reported by reject.
		_ = h.Load()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-watch.Events:
		case err := <-watch.Errors:
			slog.Warn("watching the issuer", obs.Error(err))
		case <-tick.C:
			h.watch(watch) // a directory may have been made anew
		}
	}
}

// watch adds the directories; adding one twice is harmless.
func (h *Holder) watch(w *fsnotify.Watcher) {
	for _, dir := range []string{h.files.Dir, filepath.Dir(h.files.Anchors)} {
		if err := w.Add(dir); err != nil {
			slog.Debug("directory is not watched", obs.Path(dir), obs.Error(err))
		}
	}
}
