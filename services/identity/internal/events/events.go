// Package events writes what happened to certificates where people look for
// it: as Kubernetes events on the identity Deployment and on service accounts.
//
// Record never blocks and never fails: an event that finds no room is dropped
// and counted. Signing must not wait for a log of it.
package events

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/pause"
)

// The reasons are Linkerd's.
const (
	IssuerUpdated          = "IssuerUpdated"
	IssuerUpdateSkipped    = "IssuerUpdateSkipped"
	IssuerValidationFailed = "IssuerValidationFailed"
	IssuedLeafCertificate  = "IssuedLeafCertificate"
)

// Object is what an event is about.
type Object struct{ APIVersion, Kind, Namespace, Name string }

// Event is one thing that happened.
type Event struct {
	About   Object
	Reason  string // one of the constants above
	Message string // must hold no secret
	Warning bool
	// Routine events come by the thousand; they are limited in rate, and given
	// up when the API server does not take them at once.
	Routine bool
}

const (
	// Room for events that wait to be written.
	urgentRoom, routineRoom = 32, 256
	// What a flood of certificates may write to the API server.
	routinePerSecond, routineBurst = 5, 50
	// quiet is for how long an event that is not routine is not repeated.
	quiet = time.Minute
	// postTimeout ends one attempt to write.
	postTimeout = 5 * time.Second
	// An urgent event is tried this often, with doubling pauses in between.
	attempts   = 5
	firstPause = time.Second
)

// poster writes one event.
type poster interface {
	Post(ctx context.Context, e Event, at time.Time) error
}

// Recorder takes events from anybody and writes them from one goroutine. A nil
// Recorder takes them and does nothing, for a mesh without Kubernetes.
type Recorder struct {
	to              poster
	urgent, routine chan stamped
	limit           *rate.Limiter
	count           *prometheus.CounterVec

	mu   sync.Mutex
	said map[said]time.Time // when an event that is not routine was last taken
}

type stamped struct {
	Event
	at time.Time
}

// said is what makes two events the same.
type said struct {
	about           Object
	reason, message string
}

// New makes a recorder that writes to a poster once Run runs.
func New(to poster, reg prometheus.Registerer) *Recorder {
	r := &Recorder{
		to:     to,
		urgent: make(chan stamped, urgentRoom), routine: make(chan stamped, routineRoom),
		limit: rate.NewLimiter(routinePerSecond, routineBurst),
		said:  make(map[said]time.Time),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weft_identity_events_total",
			Help: "Kubernetes events, by reason and by what became of them: written, failed, dropped (too many) or repeated (within a minute).",
		}, []string{"reason", "result"}),
	}
	reg.MustRegister(r.count)
	return r
}

// Record takes an event.
func (r *Recorder) Record(e Event) {
	if r == nil {
		return
	}
	now := time.Now()
	to := r.urgent
	if e.Routine {
		to = r.routine
		if !r.limit.AllowN(now, 1) {
			r.became(e, "dropped")
			return
		}
	} else if r.repeated(e, now) {
		r.became(e, "repeated")
		return
	}
	select {
	case to <- stamped{e, now}:
	default:
		r.became(e, "dropped")
	}
}

// repeated says whether the same was said a moment ago. What was said longer
// ago is forgotten, and so the map stays as small as a minute's new events.
func (r *Recorder) repeated(e Event, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, at := range r.said {
		if now.Sub(at) >= quiet || now.Before(at) {
			delete(r.said, k)
		}
	}
	k := said{e.About, e.Reason, e.Message}
	if _, ok := r.said[k]; ok || len(r.said) >= urgentRoom {
		return true
	}
	r.said[k] = now
	return false
}

func (r *Recorder) became(e Event, result string) {
	r.count.WithLabelValues(e.Reason, result).Inc()
}

// Run writes events until ctx ends; what is left then is lost.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		// Urgent ones first: select alone would take either.
		select {
		case e := <-r.urgent:
			r.write(ctx, e)
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case e := <-r.urgent:
			r.write(ctx, e)
		case e := <-r.routine:
			r.write(ctx, e)
		}
	}
}

func (r *Recorder) write(ctx context.Context, e stamped) {
	left, wait := attempts, firstPause
	if e.Routine {
		left = 1
	}
	for {
		err := r.post(ctx, e)
		if err == nil {
			r.became(e.Event, "written")
			return
		}
		left--
		if left == 0 || !pause.For(ctx, wait) {
			r.became(e.Event, "failed")
			slog.WarnContext(ctx, "event not written", obs.Reason(e.Reason), obs.Error(err))
			return
		}
		wait *= 2
	}
}

func (r *Recorder) post(ctx context.Context, e stamped) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	return r.to.Post(ctx, e.Event, e.at)
}
