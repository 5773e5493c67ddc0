package check

import (
	"context"
	"fmt"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
)

// cliVersion is Linkerd's linkerd-version.
func (w *World) cliVersion() engine.Category {
	return engine.Category{Name: "linkerd-version", Checks: []engine.Check{
		{Name: "can determine the latest version", Anchor: "l5d-version-latest", Warning: true, Run: func(ctx context.Context) error {
			_, err := w.latest(ctx)
			return err
		}},
		{Name: "cli is up-to-date", Anchor: "l5d-version-cli", Warning: true, Run: func(ctx context.Context) error {
			return w.upToDate(ctx, func(latest string) error {
				return same("this program", w.CLI, "the latest version", latest, "install weft "+latest)
			})
		}},
	}}
}

func (w *World) controlPlaneVersion() engine.Category {
	return engine.Category{Name: "control-plane-version", Checks: []engine.Check{
		{Name: "can retrieve the control plane version", Anchor: "l5d-version-control", Fatal: true, Retry: true, Run: func(ctx context.Context) error {
			if err := w.readConfig(ctx); err != nil {
				return err
			}
			if w.config.Version == "" {
				return &say.Problem{What: fmt.Sprintf("ConfigMap %s/%s: data.values has no linkerdVersion", w.Namespace, configMap), Next: reinstall}
			}
			return nil
		}},
		{Name: "control plane is up-to-date", Anchor: "l5d-version-control", Warning: true, Run: func(ctx context.Context) error {
			return w.upToDate(ctx, func(latest string) error {
				return same("the control plane (linkerdVersion in "+configMap+")", w.config.Version, "the latest version", latest, reinstall)
			})
		}},
		{Name: "control plane and cli versions match", Anchor: "l5d-version-control", Warning: true, Run: func(context.Context) error {
			return same("the control plane (linkerdVersion in "+configMap+")", w.config.Version, "this program", w.CLI,
				"use weft "+w.config.Version+" with this control plane, or "+reinstall)
		}},
	}}
}

func same(what, have, other, want, next string) error {
	if have == want {
		return nil
	}
	return &say.Problem{What: fmt.Sprintf("%s is %q, %s is %q", what, have, other, want), Next: next}
}

func (w *World) controlPlaneProxy() engine.Category {
	return engine.Category{Name: "linkerd-control-plane-proxy", Checks: []engine.Check{
		{Name: "control plane proxies are healthy", Anchor: "l5d-cp-proxy-healthy", Fatal: true, Retry: true, Run: func(ctx context.Context) error {
			pods, err := w.controlPods(ctx)
			if err != nil {
				return err
			}
			return judge.ProxiesReady(pods, "namespace "+w.Namespace)
		}},
		{Name: "control plane proxies are up-to-date", Anchor: "l5d-cp-proxy-version", Warning: true, Run: func(ctx context.Context) error {
			return w.upToDate(ctx, func(latest string) error {
				pods, err := w.controlPods(ctx)
				if err != nil {
					return err
				}
				return judge.ProxyVersions(pods, latest, "the latest version")
			})
		}},
		{Name: "control plane proxies and cli versions match", Anchor: "l5d-cp-proxy-cli-version", Warning: true, Run: func(ctx context.Context) error {
			pods, err := w.controlPods(ctx)
			if err != nil {
				return err
			}
			return judge.ProxyVersions(pods, w.CLI, "this program")
		}},
	}}
}
