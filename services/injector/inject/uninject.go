package inject

import (
	"maps"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/injector/internal/decide"
)

// Uninject takes out of an object what injection put there: containers,
// volumes, and the annotations and labels that begin with linkerd.io. The
// annotation linkerd.io/inject: disabled stays, and so do those of
// config.linkerd.io, which a person may have written. Objects of the control
// plane keep their annotations and labels.
func Uninject(in Object) (Object, []Report, error) {
	return each(in, func(in Object) (Object, Report, error) {
		s, err := read(in)
		if err != nil {
			return nil, Report{}, err
		}
		if s.uninject() {
			s.report.Outcome = Uninjected
		}
		return s.object, s.report, nil
	})
}

var (
	ourContainers = []string{"linkerd-init", "linkerd-proxy", "linkerd-network-validator", "linkerd-debug"}
	ourVolumes    = []string{
		"linkerd-identity-end-entity", "linkerd-proxy-init-xtables-lock", "linkerd-identity-token", "linkerd-podinfo",
	}
)

// uninject changes the subject's object and says whether there was anything.
func (s *subject) uninject() bool {
	if !s.hasPod {
		// These carry no proxy; their labels are not of the injector's making.
		named := s.core() && (s.kind == "Namespace" || s.kind == "Service")
		return named && clean(s.object, "annotations")
	}
	spec := child(s.template, "spec")
	changed := drop(spec, "containers", ourContainers)
	changed = drop(spec, "initContainers", ourContainers) || changed
	changed = drop(spec, "volumes", ourVolumes) || changed
	if s.ours() {
		return changed
	}
	for _, o := range []Object{s.object, s.template} {
		changed = clean(o, "annotations") || changed
		changed = clean(o, "labels") || changed
	}
	return changed
}

// drop takes named items out of a list; an empty list goes, too.
func drop(spec Object, list string, names []string) bool {
	items, _ := spec[list].([]any)
	left := slices.DeleteFunc(slices.Clone(items), func(item any) bool {
		o, _ := item.(Object)
		name, _ := o["name"].(string)
		return slices.Contains(names, name)
	})
	if len(left) == len(items) {
		return false
	}
	spec[list] = left
	if len(left) == 0 {
		delete(spec, list)
	}
	return true
}

// clean takes the mesh's keys out of an object's annotations or labels.
func clean(o Object, what string) bool {
	meta := child(o, "metadata")
	values := child(meta, what)
	before := len(values)
	maps.DeleteFunc(values, func(key string, value any) bool {
		return strings.HasPrefix(key, "linkerd.io") && (key != decide.InjectAnnotation || value != "disabled")
	})
	if len(values) == before {
		return false
	}
	if len(values) == 0 {
		delete(meta, what)
	}
	return true
}
