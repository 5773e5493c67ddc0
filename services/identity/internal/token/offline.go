package token

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/kit/obs"
)

const (
	// tryFor is how long one token waits for an API server that may be away,
	// when there are keys to check it with.
	tryFor = 3 * time.Second
	// restFor is for how long an API server that was away is not asked.
	restFor = 5 * time.Second
)

// authenticator is who is asked first.
type authenticator interface {
	Review(ctx context.Context, token []byte) (user string, err error)
}

// Fallback asks the API server about tokens and, only while it cannot be asked,
// checks them with the public keys that it last published.
//
// What is seen offline: signature, issuer, audience, times, and that the token
// is bound to a pod of its service account. What cannot be seen is that the pod
// or the account has been deleted since: until the token expires (an hour by
// Kubernetes' default, a day in Linkerd's projection) or the keys are too old,
// such a token still gets a certificate. Old-style tokens, which never expire,
// are not accepted offline.
type Fallback struct {
	Kube authenticator
	Keys *Keys
	Now  func() time.Time // nil means time.Now

	restUntil atomic.Int64 // Unix nanoseconds; the API server is not asked before
	away      atomic.Bool  // it did not answer the last time; said once
	count     *prometheus.CounterVec
}

// NewFallback makes a Fallback whose counters are in reg.
func NewFallback(kube authenticator, keys *Keys, reg prometheus.Registerer) *Fallback {
	f := &Fallback{Kube: kube, Keys: keys, count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_identity_offline_reviews_total",
		Help: "Tokens checked with cached keys because the API server could not be asked, by result: accepted, refused or no_keys (none, or too old).",
	}, []string{"result"})}
	reg.MustRegister(f.count)
	return f
}

func (f *Fallback) now() time.Time {
	if f.Now != nil {
		return f.Now()
	}
	return time.Now()
}

// Review gives the user name that a token stands for.
func (f *Fallback) Review(ctx context.Context, token []byte) (string, error) {
	now := f.now()
	keys := f.Keys.usable(now)
	if keys != nil && now.UnixNano() < f.restUntil.Load() {
		return f.offline(ctx, token, keys)
	}
	user, err := f.ask(ctx, token, keys != nil)
	if !errors.Is(err, ErrUnreachable) {
		if ctx.Err() == nil && f.away.CompareAndSwap(true, false) {
			slog.Info("the API server can be asked again: tokens are reviewed by it")
		}
		return user, err
	}
	f.restUntil.Store(now.Add(restFor).UnixNano())
	if f.away.CompareAndSwap(false, true) {
		slog.Warn("the API server cannot be asked: tokens are checked with its last known keys",
			slog.Bool("usable", keys != nil), obs.Error(err))
	}
	if keys == nil {
		f.count.WithLabelValues("no_keys").Inc()
		return "", err
	}
	return f.offline(ctx, token, keys)
}

// ask asks the API server, for a short time if there is another way.
func (f *Fallback) ask(ctx context.Context, token []byte, short bool) (string, error) {
	if !short {
		return f.Kube.Review(ctx, token)
	}
	try, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	user, err := f.Kube.Review(try, token)
	if err != nil && ctx.Err() == nil && try.Err() != nil {
		return "", fmt.Errorf("%w: no answer within %s", ErrUnreachable, tryFor)
	}
	return user, err
}

func (f *Fallback) offline(ctx context.Context, token []byte, keys *published) (string, error) {
	user, err := keys.verify(token, f.now)
	if err != nil {
		f.count.WithLabelValues("refused").Inc()
		slog.WarnContext(ctx, "token not accepted offline", obs.Error(err))
		// Not ErrInvalid: the API server might have accepted it.
		return "", ErrUnreachable
	}
	f.count.WithLabelValues("accepted").Inc()
	slog.WarnContext(ctx, "token checked offline: a deleted pod or account could not be seen", "user", user)
	return user, nil
}

// bound is what a projected token says of whom it was made for
// (k8s.io/kubernetes pkg/serviceaccount).
type bound struct {
	jwt.RegisteredClaims
	Kubernetes struct {
		Namespace string `json:"namespace"`
		Account   object `json:"serviceaccount"`
		Pod       object `json:"pod"`
	} `json:"kubernetes.io"`
}

type object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

var errClaims = errors.New("claims do not belong together")

// Validate is called by the parser when everything registered is in order.
func (b bound) Validate() error {
	k := b.Kubernetes
	if k.Namespace == "" || k.Account.Name == "" || k.Account.UID == "" || k.Pod.Name == "" || k.Pod.UID == "" {
		return errClaims
	}
	if b.Subject != "system:serviceaccount:"+k.Namespace+":"+k.Account.Name {
		return errClaims
	}
	return nil
}

// verify checks a token with what an API server published.
func (p *published) verify(token []byte, now func() time.Time) (string, error) {
	parser := jwt.NewParser(
		jwt.WithValidMethods(methods),
		jwt.WithIssuer(p.issuer),
		jwt.WithAudience(Audience),
		jwt.WithExpirationRequired(),
		jwt.WithTimeFunc(now),
	)
	var got bound
	if _, err := parser.ParseWithClaims(string(token), &got, among(p.keys)); err != nil {
		return "", refusal(err)
	}
	return got.Subject, nil
}
