package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/diag/scrape"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

const (
	natsPods    = "linkerd.io/control-plane-component=nats"
	natsMonitor = 8222 // on the pod's loopback; a port-forward reaches it
	natsSecret  = "weft-nats-tls"
	busSecrets  = "weft-bus-"
	busCA       = "weft-bus-ca" // signs the others; made by the chart, or absent
)

// bus is the category about NATS. A mesh on somebody else's NATS has none of it.
func (w *World) bus() engine.Category {
	const anchor = "weft-bus-"
	return engine.Category{Name: "weft-bus", Checks: []engine.Check{
		{Name: "NATS servers are ready", Anchor: anchor + "servers", Retry: true, Run: func(ctx context.Context) error {
			set, err := w.natsSet(ctx)
			if err != nil {
				return err
			}
			if ready, want := set.Status.ReadyReplicas, replicas(set); ready < max(want, 1) {
				return &say.Problem{
					What: fmt.Sprintf("StatefulSet %s/%s: status.readyReplicas is %d, spec.replicas is %d", w.Namespace, nats, ready, want),
					Next: fmt.Sprintf("kubectl -n %s describe pod -l %s", w.Namespace, natsPods),
				}
			}
			return nil
		}},
		{Name: "NATS cluster has a quorum", Anchor: anchor + "quorum", Retry: true, Run: func(ctx context.Context) error {
			set, err := w.natsSet(ctx)
			if err != nil {
				return err
			}
			servers, err := w.natsServers(ctx)
			if err != nil {
				return err
			}
			return judge.Quorum(servers, int(replicas(set)), w.Namespace)
		}},
		{Name: "bus certificates are valid", Anchor: anchor + "certs-valid", Run: w.busCerts(func(s corev1.Secret) error {
			cert, roots, err := busCert(s)
			if err != nil {
				return err
			}
			return judge.Holds(cert, roots, w.Now(), busCertNext)
		})},
		{Name: "bus certificates are valid for at least 60 days", Anchor: anchor + "certs-not-expiring-soon", Warning: true, Run: w.busCerts(func(s corev1.Secret) error {
			cert, roots, err := busCert(s)
			if err != nil {
				return nil // the check above tells it
			}
			if s.Name == w.natsSecret() { // all have the same authority
				cert.Certs = append(cert.Certs, roots.Certs...)
			}
			return judge.Lasting(cert, w.Now(), busCertNext)
		})},
	}}
}

const busCertNext = "let cert-manager renew it, or delete the Secret and " + reinstall

// natsSecret is the name of the Secret with the servers' certificate.
func (w *World) natsSecret() string {
	if w.config != nil && w.config.NATS.TLSSecret != "" {
		return w.config.NATS.TLSSecret
	}
	return natsSecret
}

func replicas(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// natsSet reads NATS' StatefulSet; without one the bus is elsewhere.
func (w *World) natsSet(ctx context.Context) (*appsv1.StatefulSet, error) {
	set, err := get[appsv1.StatefulSet](ctx, w.door, kube.StatefulSets, w.Namespace, nats)
	if apierrors.IsNotFound(err) {
		return nil, engine.Skip("NATS is not the chart's")
	}
	return set, err
}

// natsServers asks each server's monitor who it is and whom it hears.
func (w *World) natsServers(ctx context.Context) ([]judge.Server, error) {
	pods, err := list[corev1.Pod](ctx, w.door, kube.Pods, w.Namespace, natsPods)
	if err != nil {
		return nil, err
	}
	return scrape.Each(ctx, pods, func(ctx context.Context, p corev1.Pod) judge.Server {
		s := judge.Server{Pod: p.Namespace + "/" + p.Name}
		body, err := scrape.Get(ctx, w.door, scrape.Target{Namespace: p.Namespace, Pod: p.Name, Port: natsMonitor, Path: "/routez"})
		if err != nil {
			s.Err = err
			return s
		}
		var answer struct {
			ServerID string `json:"server_id"`
			Routes   []struct {
				RemoteID string `json:"remote_id"`
			} `json:"routes"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			s.Err = fmt.Errorf("reading /routez: %w", err)
			return s
		}
		s.ID = answer.ServerID
		for _, r := range answer.Routes {
			s.Peers = append(s.Peers, r.RemoteID)
		}
		return s
	}), nil
}

// busCerts judges each certificate of the bus. That there is none is wrong:
// only a bus that is not the chart's may be without.
func (w *World) busCerts(judged func(corev1.Secret) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := w.natsSet(ctx); err != nil {
			return err
		}
		secrets, err := list[corev1.Secret](ctx, w.door, kube.Secrets, w.Namespace, "")
		if err != nil {
			return err
		}
		secrets = slices.DeleteFunc(secrets, func(s corev1.Secret) bool { return s.Name != w.natsSecret() && !strings.HasPrefix(s.Name, busSecrets) })
		slices.SortFunc(secrets, func(a, b corev1.Secret) int { return strings.Compare(a.Name, b.Name) })
		if !slices.ContainsFunc(secrets, func(s corev1.Secret) bool { return s.Name == w.natsSecret() }) {
			return &say.Problem{What: fmt.Sprintf("Secret %s/%s does not exist", w.Namespace, w.natsSecret()), Next: reinstall}
		}
		var all []error
		for _, s := range secrets {
			all = append(all, judged(s))
		}
		return judge.Together(all...)
	}
}

// busCert reads the certificate of a client or a server of the bus, and what it trusts.
func busCert(s corev1.Secret) (cert, roots judge.Bundle, err error) {
	from := fmt.Sprintf("Secret %s/%s", s.Namespace, s.Name)
	if cert, err = judge.ReadPair(from+" keys tls.crt, tls.key", s.Data["tls.crt"], s.Data["tls.key"]); err != nil {
		return cert, roots, err
	}
	if s.Name == busCA {
		return cert, cert, nil
	}
	roots, err = judge.ReadBundle(from+" key ca.crt", s.Data["ca.crt"])
	return cert, roots, err
}
