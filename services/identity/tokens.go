package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/weftmesh/weft/services/identity/internal/token"
	"github.com/weftmesh/weft/services/kit/obs"
)

// tokenReviewer says whom a token stands for.
type tokenReviewer interface {
	Review(ctx context.Context, token []byte) (user string, err error)
}

// reviewer is the checker of tokens that -tokens asks for.
func reviewer(ctx context.Context, cfg config) (tokenReviewer, error) {
	if file, ok := strings.CutPrefix(cfg.Tokens, "jwks:"); ok {
		local := &token.Local{Path: file}
		if err := local.Check(); err != nil {
			return nil, err
		}
		return local, nil
	}
	rest, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configuring the Kubernetes client: %w", err)
	}
	// Linkerd's rates: each proxy's start costs one review.
	rest.QPS, rest.Burst = 100, 200
	rest.Timeout = 10 * time.Second
	api, err := token.Connect(rest)
	if err != nil {
		return nil, err
	}
	if err := mayReview(ctx, api); err != nil {
		return nil, err
	}
	return &token.Kube{Reviews: api}, nil
}

// mayReview asks whether this account may check tokens. Only a clear no is an
// error: an API server that is away now may be back for the first proxy.
func mayReview(ctx context.Context, api *token.API) error {
	allowed, err := api.MayReview(ctx)
	if err != nil {
		slog.Warn("permission to review tokens could not be checked", obs.Error(err))
		return nil
	}
	if !allowed {
		return errors.New("this account may not create tokenreviews.authentication.k8s.io; bind it to system:auth-delegator")
	}
	return nil
}
