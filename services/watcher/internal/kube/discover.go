package kube

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// discover looks which custom kinds the API server has, begins to watch those
// that are new, and gives up those that are gone, with their objects.
func (s *Source) discover(ctx context.Context) error {
	have, err := s.installed(ctx)
	if err != nil {
		return err
	}
	for _, info := range shape.Kinds {
		if !info.Custom {
			continue
		}
		version := have[info.Kind]
		now, next := s.feeds[info.Kind], s.next[info.Kind]
		switch {
		case version == "" && now != nil:
			s.mu.Lock()
			delete(s.feeds, info.Kind)
			delete(s.next, info.Kind)
			s.mu.Unlock()
			now.stop()
			if next != nil {
				next.stop()
			}
			s.nameAll(now)
			s.cfg.Log.Warn("custom kind is gone", "kind", string(info.Kind))
		case version != "" && now == nil:
			if err := s.start(ctx, info, version); err != nil {
				return err
			}
			s.cfg.Log.Info("custom kind is read", "kind", string(info.Kind), "version", version)
		case version != "" && now.version != version && (next == nil || next.version != version):
			if next != nil {
				next.stop()
			}
			if err := s.start(ctx, info, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// installed asks which version of each custom kind to read: the first of those
// we know that the API server serves. A kind that it has not is not in the map.
func (s *Source) installed(ctx context.Context) (map[shape.Kind]string, error) {
	resources := make(map[string][]string) // group/version -> plurals
	for _, info := range shape.Kinds {
		if !info.Custom {
			continue
		}
		for _, v := range info.Versions {
			gv := info.Group + "/" + v
			if _, asked := resources[gv]; asked {
				continue
			}
			names, err := s.resources(ctx, gv)
			if err != nil {
				return nil, err
			}
			resources[gv] = names
		}
	}
	have := make(map[shape.Kind]string)
	for _, info := range shape.Kinds {
		if !info.Custom {
			continue
		}
		for _, v := range info.Versions {
			if slices.Contains(resources[info.Group+"/"+v], info.Resource) {
				have[info.Kind] = v
				break
			}
		}
	}
	return have, nil
}

// resources are the plurals of a group and version; none when the API server
// doesn't have it.
func (s *Source) resources(ctx context.Context, groupVersion string) ([]string, error) {
	list, err := s.clients.Discovery.Resources(ctx, groupVersion)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the resources of %s: %w", groupVersion, err)
	}
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
	}
	return names, nil
}
