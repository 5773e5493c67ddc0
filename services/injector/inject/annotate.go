package inject

import (
	"errors"
	"fmt"
	"maps"

	"github.com/weftmesh/weft/services/injector/internal/decide"
)

// ErrControlPlane means that the webhook never touches an object, since it is
// of the control plane: its proxy must be in the manifest.
var ErrControlPlane = errors.New("parts of the control plane are passed over by the webhook and need their proxy in the manifest (--manual)")

// Annotate makes an object ask the webhook for a proxy: workloads and
// Namespaces get linkerd.io/inject and o.Config, Services the opaque ports of
// o.Config. What an earlier run left in the object is taken out first. A
// workload that says linkerd.io/inject: disabled is skipped; one that cannot
// have a proxy is a *Refusal, and then no object is returned. Of m, only the
// values count; nil means the defaults.
func Annotate(in Object, m Mesh, o Options) (Object, []Report, error) {
	return each(in, func(in Object) (Object, Report, error) {
		s, verdict, err := prepare(in, m)
		if err != nil {
			return nil, Report{}, err
		}
		switch {
		case s.kind == "Namespace" && s.core():
			annotate(s.object, wish(o))
			s.report.Outcome = Annotated
			return s.object, s.report, nil
		case !s.hasPod || !verdict.Inject():
			return s.without(o)
		case s.ours():
			return nil, s.report, fmt.Errorf("annotating %s: %w", s.report.Object(), ErrControlPlane)
		}
		annotate(s.template, wish(o))
		s.report.Outcome = Annotated
		return s.object, s.report, nil
	})
}

// wish is what asks the webhook for a proxy.
func wish(o Options) map[string]string {
	out := maps.Clone(o.Config)
	if out == nil {
		out = map[string]string{}
	}
	out[decide.InjectAnnotation] = "enabled"
	if o.Ingress {
		out[decide.InjectAnnotation] = "ingress"
	}
	return out
}

// prepare reads an object, takes out what is of the mesh, and decides.
func prepare(in Object, m Mesh) (*subject, decide.Verdict, error) {
	s, err := read(in)
	if err != nil {
		return nil, decide.Verdict{}, err
	}
	if s.uninject() && s.hasPod {
		if s, err = read(s.object); err != nil {
			return nil, decide.Verdict{}, err
		}
	}
	if !s.hasPod {
		return s, decide.Verdict{Reasons: []string{Unsupported}}, nil
	}
	v := m.Values
	if v == nil {
		v = DefaultValues("")
	}
	asked := map[string]string{decide.InjectAnnotation: "enabled"} // by the one who runs the command
	verdict := decide.Pod(s.pod, asked, v)
	s.report.Reasons = verdict.Reasons
	return s, verdict, nil
}

// without finishes an object that gets no proxy and doesn't ask for one.
func (s *subject) without(o Options) (Object, Report, error) {
	if s.kind == "Service" && s.core() {
		if ports, ok := o.Config[decide.OpaqueAnnotation]; ok {
			annotate(s.object, map[string]string{decide.OpaqueAnnotation: ports})
			s.report.Outcome = Annotated
		}
		return s.object, s.report, nil
	}
	if !s.hasPod {
		s.report.Reasons = []string{Unsupported}
		return s.object, s.report, nil
	}
	s.report.Outcome = Skipped
	if err := refused(s.report); err != nil {
		return nil, s.report, err
	}
	return s.object, s.report, nil
}

func (s *subject) core() bool { return s.object["apiVersion"] == "v1" }
