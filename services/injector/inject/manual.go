package inject

import (
	"fmt"

	"github.com/weftmesh/weft/services/injector/internal/patch"
)

// Manual puts the proxy itself into an object: what the webhook would add to
// its pods is added to its template. Namespaces stay as they are, Services get
// the opaque ports of o.Config; skips and refusals are those of Annotate. An
// error that is no *Refusal means settings that contradict each other.
func Manual(in Object, m Mesh, o Options) (Object, []Report, error) {
	if m.Values == nil {
		m.Values = DefaultValues("")
	}
	return each(in, func(in Object) (Object, Report, error) {
		s, verdict, err := prepare(in, m)
		if err != nil {
			return nil, Report{}, err
		}
		if !s.hasPod || !verdict.Inject() {
			return s.without(o)
		}
		return s.inject(m, o)
	})
}

func (s *subject) inject(m Mesh, o Options) (Object, Report, error) {
	annotate(s.template, o.Config)
	if err := s.readPod(); err != nil {
		return nil, s.report, err
	}
	if o.Ingress {
		v := *m.Values
		v.Proxy.IsIngress = true
		m.Values = &v
	}
	ops, warnings, err := patch.Pod(patch.Input{
		Pod: s.pod, Namespace: s.namespace(o.Namespace), Owner: s.owner(),
		Values: m.Values, Anchors: m.Anchors, ControllerNamespace: m.controller(),
		Template: &patch.Template{
			At: s.at, Bare: child(s.template, "metadata") == nil, CreatedBy: "linkerd/cli " + m.Values.LinkerdVersion,
		},
	})
	s.report.Warnings = warnings
	if err != nil {
		return nil, s.report, fmt.Errorf("injecting %s: %w", s.report.Object(), err)
	}
	after, err := patch.Apply(s.object, ops)
	if err != nil {
		return nil, s.report, fmt.Errorf("injecting %s: %w", s.report.Object(), err)
	}
	out, _ := after.(Object)
	s.report.Outcome = Injected
	return out, s.report, nil
}
