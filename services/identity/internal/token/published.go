package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/pause"
)

const (
	// refresh is how often the keys are asked for, less up to a tenth.
	refresh = 5 * time.Minute
	// The pauses after a failure, doubling.
	leastPause, mostPause = 5 * time.Second, refresh
	// fetchTimeout ends one attempt.
	fetchTimeout = 10 * time.Second
)

// publisher has what an API server publishes about its tokens.
type publisher interface {
	Discovery(ctx context.Context) ([]byte, error) // /.well-known/openid-configuration
	JWKS(ctx context.Context) ([]byte, error)      // /openid/v1/jwks
}

// published is one answer. It never changes.
type published struct {
	issuer string
	keys   []Key
	at     time.Time
}

// Keys are the public keys of the API server's tokens, as last seen.
type Keys struct {
	from publisher
	most time.Duration
	now  func() time.Time
	last atomic.Pointer[published]
}

// NewKeys makes an empty cache; Run fills it. Keys that were seen longer ago
// than most are not used.
func NewKeys(from publisher, most time.Duration, now func() time.Time, reg prometheus.Registerer) *Keys {
	k := &Keys{from: from, most: most, now: now}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weft_identity_offline_keys_seen_seconds",
		Help: "Unix time at which the API server's token keys were last seen; 0 before the first time.",
	}, func() float64 {
		if p := k.last.Load(); p != nil {
			return float64(p.at.Unix())
		}
		return 0
	}))
	return k
}

// usable is nil if there are no keys or they are too old.
func (k *Keys) usable(now time.Time) *published {
	p := k.last.Load()
	if p == nil || now.Sub(p.at) > k.most {
		return nil
	}
	return p
}

// Run keeps the keys fresh until ctx ends. Without them everything else works.
func (k *Keys) Run(ctx context.Context) error {
	next, failing := leastPause, false
	for {
		wait := refresh - rand.N(refresh/10) //nolint:gosec // spreads, hides nothing
		if err := k.fetch(ctx); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !failing { // once, not at each attempt
				slog.Warn("the API server's token keys cannot be read", obs.Error(err))
			}
			failing = true
			wait, next = next, min(2*next, mostPause)
		} else {
			next, failing = leastPause, false
		}
		if !pause.For(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

func (k *Keys) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	discovery, err := k.from.Discovery(ctx)
	if err != nil {
		return err
	}
	jwks, err := k.from.JWKS(ctx)
	if err != nil {
		return err
	}
	next, err := parsePublished(discovery, jwks)
	if err != nil {
		return err
	}
	next.at = k.now()
	k.last.Store(next)
	return nil
}

// parsePublished reads both documents. A key that we cannot read does not take
// the others with it.
func parsePublished(discovery, jwks []byte) (*published, error) {
	if len(discovery) > maxKeyFile || len(jwks) > maxKeyFile {
		return nil, fmt.Errorf("reading the token keys: more than %d bytes", maxKeyFile)
	}
	var doc struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(discovery, &doc); err != nil || doc.Issuer == "" {
		return nil, errors.New("reading the token keys: the discovery document names no issuer")
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(jwks, &set); err != nil {
		return nil, errors.New("reading the token keys: not a JWK set")
	}
	out := &published{issuer: doc.Issuer}
	for _, raw := range set.Keys {
		var j jwk
		if json.Unmarshal(raw, &j) != nil {
			continue
		}
		if key, ok, err := j.key(); err == nil && ok && len(out.keys) < maxKeys {
			out.keys = append(out.keys, key)
		}
	}
	if len(out.keys) == 0 {
		return nil, errors.New("reading the token keys: none that we can use")
	}
	return out, nil
}
