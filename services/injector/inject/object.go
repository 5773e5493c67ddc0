package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/injector/internal/decide"
)

// Object is a Kubernetes object as encoding/json decodes one.
type Object = map[string]any

// templates says where the pod template of each kind is.
var templates = map[string]string{
	"Pod":                   "",
	"Deployment":            "/spec/template",
	"ReplicationController": "/spec/template",
	"ReplicaSet":            "/spec/template",
	"StatefulSet":           "/spec/template",
	"DaemonSet":             "/spec/template",
	"Job":                   "/spec/template",
	"CronJob":               "/spec/jobTemplate/spec/template",
}

// subject is one object being looked at: a deep copy, free to be changed.
type subject struct {
	object Object
	kind   string
	report Report
	// at is the pointer to the pod template; hasPod is false for other kinds.
	at     string
	hasPod bool
	// template is the part of object that at points to.
	template Object
	pod      *corev1.Pod
}

// read takes an object apart. What cannot be a Kubernetes object is an error.
func read(in Object) (*subject, error) {
	object, _ := copied(in).(Object)
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	if kind == "" || version == "" {
		return nil, errors.New("the manifest has no kind or no apiVersion")
	}
	s := &subject{object: object, kind: kind, report: Report{Kind: strings.ToLower(kind), Outcome: Unchanged}}
	meta := child(object, "metadata")
	s.report.Name, _ = meta["name"].(string)
	if s.report.Name == "" {
		s.report.Name, _ = meta["generateName"].(string)
	}
	at, ok := templates[kind]
	if !ok || !builtin(version) {
		return s, nil
	}
	s.at, s.template = at, object
	for token := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		if token != "" {
			s.template = child(s.template, token)
		}
	}
	if s.template == nil || s.template["spec"] == nil {
		return s, nil // nothing to put a proxy into
	}
	if err := s.readPod(); err != nil {
		return nil, err
	}
	s.hasPod = true
	for _, c := range s.pod.Spec.Containers {
		for _, p := range c.Ports {
			s.report.UDP = s.report.UDP || p.Protocol == corev1.ProtocolUDP
		}
	}
	return s, nil
}

// readPod looks at the template as it is now.
func (s *subject) readPod() error {
	raw, err := json.Marshal(s.template)
	if err == nil {
		s.pod, err = decide.Read(raw)
	}
	if err != nil {
		return fmt.Errorf("reading the pod template of %s: %w", s.report.Object(), err)
	}
	return nil
}

// builtin: other groups have kinds of these names, too (Knative's Service, say).
func builtin(version string) bool {
	group, _, ok := strings.Cut(version, "/")
	return !ok || group == "apps" || group == "batch" || group == "extensions"
}

// namespace is the object's, or the one it will be placed in.
func (s *subject) namespace(otherwise string) string {
	if name, _ := child(s.object, "metadata")["namespace"].(string); name != "" {
		return name
	}
	return otherwise
}

// owner is who the template's pods will belong to.
func (s *subject) owner() decide.Owner {
	if s.kind == "Pod" {
		return decide.OwnerOf(s.pod)
	}
	return decide.Owner{Kind: s.report.Kind, Name: s.report.Name}
}

// ours says whether the object is a part of the control plane.
func (s *subject) ours() bool {
	for _, o := range []Object{s.object, s.template} {
		if _, ok := child(child(o, "metadata"), "labels")["linkerd.io/control-plane-component"]; ok {
			return true
		}
	}
	return false
}

// annotate sets annotations on an object or template.
func annotate(object Object, values map[string]string) {
	if len(values) == 0 {
		return
	}
	annotations := member(member(object, "metadata"), "annotations")
	for key, value := range values {
		annotations[key] = value
	}
}

// child is a member that is an object; nil, which reads as empty, if it isn't.
func child(o Object, name string) Object {
	out, _ := o[name].(Object)
	return out
}

// member is a member that is an object, made if it isn't there.
func member(o Object, name string) Object {
	out := child(o, name)
	if out == nil {
		out = Object{}
		o[name] = out
	}
	return out
}

// copied is a deep copy; numbers keep their types.
func copied(v any) any {
	switch v := v.(type) {
	case Object:
		out := make(Object, len(v))
		for key, value := range v {
			out[key] = copied(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = copied(value)
		}
		return out
	}
	return v
}
