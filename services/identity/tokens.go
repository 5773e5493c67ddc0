package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/weftmesh/weft/services/identity/internal/events"
	"github.com/weftmesh/weft/services/identity/internal/issuer"
	"github.com/weftmesh/weft/services/identity/internal/serve"
	"github.com/weftmesh/weft/services/identity/internal/token"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
)

// tokenReviewer says whom a token stands for.
type tokenReviewer interface {
	Review(ctx context.Context, token []byte) (user string, err error)
}

// source is who checks tokens, and who is told what happens.
type source struct {
	tokens tokenReviewer
	keys   *token.Keys      // nil if tokens are never checked offline
	events *events.Recorder // nil without Kubernetes
}

// parts adds what has to run.
func (f source) parts(s *run.Service) {
	if f.keys != nil {
		s.Part("token keys", f.keys.Run)
	}
	if f.events != nil {
		s.Part("events", f.events.Run)
	}
}

// told makes events of what the holder of the issuer does.
func (f source) told(namespace string) func(issuer.Change) {
	about := serve.Deployment(namespace)
	return func(c issuer.Change) {
		switch {
		case c.Err != nil:
			f.events.Record(events.Event{
				About: about, Reason: events.IssuerUpdateSkipped, Warning: true,
				Message: "Skipping issuer update, the former issuer stays in use: " + c.Err.Error(),
			})
		case !c.First:
			f.events.Record(events.Event{About: about, Reason: events.IssuerUpdated, Message: "Updated identity issuer"})
		}
	}
}

// reviewer is the checker of tokens that -tokens asks for.
func reviewer(ctx context.Context, s *run.Service, cfg config) (source, error) {
	if file, ok := strings.CutPrefix(cfg.Tokens, "jwks:"); ok {
		local := &token.Local{Path: file}
		if err := local.Check(); err != nil {
			return source{}, err
		}
		return source{tokens: local}, nil
	}
	client, err := kubeClient(cfg.Kubeconfig)
	if err != nil {
		return source{}, fmt.Errorf("configuring the Kubernetes client: %w", err)
	}
	readTokenAgain(client)
	// No rate here: requests wait for their turn before their token is looked
	// at, where what is too much can be refused with a hint.
	client.QPS = -1
	client.Timeout = 10 * time.Second
	api, err := token.Connect(client)
	if err != nil {
		return source{}, err
	}
	if err := mayReview(ctx, api); err != nil {
		return source{}, err
	}
	host, err := os.Hostname() // the pod's name, in a cluster
	if err != nil {
		return source{}, fmt.Errorf("naming this process in events: %w", err)
	}
	writer, err := events.Connect(client, host)
	if err != nil {
		return source{}, err
	}
	kube := &token.Kube{Reviews: api}
	from := source{tokens: kube, events: events.New(writer, s.Metrics())}
	if cfg.OfflineTokens > 0 {
		from.keys = token.NewKeys(api, cfg.OfflineTokens, time.Now, s.Metrics())
		from.tokens = token.NewFallback(kube, from.keys, s.Metrics())
	}
	return from, nil
}

// kubeClient reads a kubeconfig, or finds the pod's own account.
func kubeClient(path string) (*rest.Config, error) {
	if path == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", path)
}

// readTokenAgain makes a refused token of this account be read from its file
// again at once; client-go would go on with it for up to a minute, in which no
// proxy could get a certificate. (The watcher has the same few lines.)
func readTokenAgain(cfg *rest.Config) {
	if cfg.BearerTokenFile == "" {
		return
	}
	cfg.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(cfg.BearerTokenFile)))
	cfg.BearerToken, cfg.BearerTokenFile = "", ""
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
