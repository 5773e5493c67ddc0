package outbound

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// The prefixes of the annotations that are read here.
const (
	balancer      = "balancer.linkerd.io/"
	balancerAlpha = "balancer.alpha.linkerd.io/"
	consecutive   = balancer + "failure-accrual-consecutive-"
	successRate   = balancerAlpha + "failure-accrual-success-rate-"
)

// Limits that the proxy enforces too; beyond them it would refuse the whole
// answer. Source: spec/destination-policy.md §9.6.
const (
	minWindow      = 10 * time.Millisecond
	maxMinRequests = 1_000_000
	maxJitter      = 100
	maxPenalty     = math.MaxUint32 * time.Millisecond
)

// accrual is when an endpoint is taken out of the balancer.
type accrual struct {
	unified          bool
	maxFailures      uint32
	minPenalty       time.Duration
	maxPenalty       time.Duration
	jitter           float32
	threshold        float64
	window           time.Duration
	minRequests      uint32
	honourRetryAfter bool
}

// penalty makes failing endpoints look slow.
type penalty struct{ penalty, maxRetryAfter time.Duration }

// retry says what is retried: of HTTP the statuses, of gRPC the codes.
type retry struct {
	limit    uint32
	timeout  time.Duration
	statuses []derive.StatusRange
	codes    derive.GRPCStatus
}

// timeouts are zero where there is none.
type timeouts struct {
	request, response, idle time.Duration
	// set says that any of them was written, be it as 0.
	set bool
}

// reader reads annotations and remembers what was wrong with them.
type reader struct {
	values   map[string]string
	problems []string
}

// take returns the problems since the last take.
func (r *reader) take() []string {
	p := r.problems
	r.problems = nil
	return p
}

func (r *reader) fail(key string, format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf("annotation %s: ", key)+fmt.Sprintf(format, args...))
}

// accrual reads the mode and its settings. Any mistake drops the whole: half a
// circuit breaker surprises more than none.
func (r *reader) accrual() *accrual {
	mode, ok := r.values[balancer+"failure-accrual"]
	if !ok {
		return nil
	}
	if mode != "consecutive" && mode != "unified" {
		r.fail(balancer+"failure-accrual", "%q is neither consecutive nor unified", mode)
		return nil
	}
	a := &accrual{
		unified:     mode == "unified",
		maxFailures: r.number(consecutive+"max-failures", 7),
		minPenalty:  r.duration(consecutive+"min-penalty", time.Second),
		maxPenalty:  r.duration(consecutive+"max-penalty", time.Minute),
		jitter:      float32(r.ratio(consecutive+"jitter-ratio", 0.5, maxJitter)),
	}
	if a.minPenalty == 0 {
		r.fail(consecutive+"min-penalty", "must not be zero")
	}
	if a.minPenalty > a.maxPenalty {
		r.fail(consecutive+"min-penalty", "%v is more than the maximum %v", a.minPenalty, a.maxPenalty)
	}
	if a.unified {
		r.unified(a)
	}
	if len(r.problems) > 0 {
		return nil
	}
	return a
}

func (r *reader) unified(a *accrual) {
	a.threshold = r.ratio(successRate+"threshold", 0.8, 1)
	a.window = r.duration(successRate+"window", 10*time.Second)
	a.minRequests = r.number(successRate+"min-requests", 5)
	if a.window == 0 {
		r.fail(successRate+"window", "must not be zero")
	}
	// A threshold of zero switches this half off, and the proxy's limits with it.
	if a.threshold != 0 && a.window < minWindow {
		r.fail(successRate+"window", "%v is less than %v", a.window, minWindow)
	}
	if a.threshold != 0 && a.minRequests > maxMinRequests {
		r.fail(successRate+"min-requests", "%d is more than %d", a.minRequests, maxMinRequests)
	}
}

func (r *reader) penalty() *penalty {
	on := r.boolean(balancerAlpha + "penalize-failures")
	if !on {
		return nil
	}
	p := &penalty{
		penalty:       r.duration(balancerAlpha+"load-biaser-penalty", 5*time.Second),
		maxRetryAfter: r.duration(balancerAlpha+"load-biaser-max-retry-after", 300*time.Second),
	}
	if p.penalty > maxPenalty {
		r.fail(balancerAlpha+"load-biaser-penalty", "%v is more than %v", p.penalty, maxPenalty)
	}
	if len(r.problems) > 0 {
		return nil
	}
	return p
}

// retry needs at least one of its annotations; a limit or timeout of zero
// counts as not set. A mistake drops the whole.
func (r *reader) retry(grpc bool) *retry {
	limit, hasLimit := r.values["retry.linkerd.io/limit"]
	out := &retry{limit: 1, timeout: r.duration("retry.linkerd.io/timeout", 0)}
	if hasLimit {
		n, err := strconv.ParseUint(strings.TrimSpace(limit), 10, 16)
		if err != nil {
			r.fail("retry.linkerd.io/limit", "%q is not a whole number up to 65535", limit)
		}
		if n == 0 {
			hasLimit = false
		} else {
			out.limit = uint32(n)
		}
	}
	key := "retry.linkerd.io/http"
	if grpc {
		key = "retry.linkerd.io/grpc"
	}
	conditions, hasConditions := r.values[key]
	if hasConditions {
		var err error
		if grpc {
			out.codes, err = derive.ParseGRPCStatuses(conditions)
		} else {
			out.statuses, err = derive.ParseStatuses(conditions)
		}
		if err != nil {
			r.fail(key, "%v", err)
		}
	}
	if len(r.problems) > 0 || !hasLimit && !hasConditions && out.timeout == 0 {
		return nil
	}
	return out
}

func (r *reader) timeouts() timeouts {
	out := timeouts{
		request:  r.duration("timeout.linkerd.io/request", 0),
		response: r.duration("timeout.linkerd.io/response", 0),
		idle:     r.duration("timeout.linkerd.io/idle", 0),
	}
	for _, key := range []string{"request", "response", "idle"} {
		_, ok := r.values["timeout.linkerd.io/"+key]
		out.set = out.set || ok
	}
	if len(r.problems) > 0 {
		return timeouts{}
	}
	return out
}

func (r *reader) duration(key string, otherwise time.Duration) time.Duration {
	v, ok := r.values[key]
	if !ok {
		return otherwise
	}
	d, err := derive.ParseDuration(v)
	if err != nil {
		r.fail(key, "%v", err)
		return otherwise
	}
	return d
}

func (r *reader) number(key string, otherwise uint32) uint32 {
	v, ok := r.values[key]
	if !ok {
		return otherwise
	}
	n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 32)
	if err != nil {
		r.fail(key, "%q is not a whole number", v)
		return otherwise
	}
	return uint32(n)
}

func (r *reader) ratio(key string, otherwise, most float64) float64 {
	v, ok := r.values[key]
	if !ok {
		return otherwise
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
	// Written so that NaN, which compares false to everything, is refused.
	if err != nil || !(f >= 0 && f <= most) {
		r.fail(key, "%q is not a number from 0 to %v", v, most)
		return otherwise
	}
	return f
}

func (r *reader) boolean(key string) bool {
	v, ok := r.values[key]
	if !ok {
		return false
	}
	b, err := strconv.ParseBool(strings.TrimSpace(v))
	if err != nil {
		r.fail(key, "%q is neither true nor false", v)
	}
	return b
}
