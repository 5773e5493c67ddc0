// Package serve is the webhook: it reads reviews, asks the rooms that decide,
// and answers with their patch. It decides nothing itself.
package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/injector/internal/decide"
	"github.com/weftmesh/weft/services/injector/internal/patch"
	"github.com/weftmesh/weft/services/injector/internal/values"
	"github.com/weftmesh/weft/services/kit/obs"
)

// settings are read anew for each request.
type settings interface {
	Get() (*values.Settings, error)
}

// namespaces knows namespaces' annotations.
type namespaces interface {
	Annotations(ctx context.Context, namespace string) (map[string]string, error)
}

// Admitter answers admission requests.
type Admitter struct {
	Settings            settings
	Namespaces          namespaces
	ControllerNamespace string

	requests, responses *prometheus.CounterVec
}

// Measure registers the counters; the names are Linkerd's. Linkerd also has a
// label for each annotation's value; those are left out, they have no bound.
func (a *Admitter) Measure(reg prometheus.Registerer) {
	a.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxy_inject_admission_requests_total",
		Help: "Admission requests for pods, by owner's kind, namespace, and where the deciding annotation is.",
	}, []string{"owner_kind", "namespace", "annotation_at"})
	a.responses = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "proxy_inject_admission_responses_total",
		Help: "Answers to admission requests; skip says that no proxy was added, skip_reason why.",
	}, []string{"owner_kind", "namespace", "skip", "skip_reason", "annotation_at"})
	reg.MustRegister(a.requests, a.responses)
}

// owners are the kinds that a metric names; whoever makes a pod may write any.
var owners = [...]string{
	"pod", "service", "replicaset", "deployment", "statefulset", "daemonset", "job", "cronjob", "replicationcontroller",
}

func (a *Admitter) count(owner, namespace string, v decide.Verdict) {
	if a.requests == nil {
		return
	}
	if !slices.Contains(owners[:], owner) {
		owner = "other"
	}
	a.requests.WithLabelValues(owner, namespace, v.At).Inc()
	a.responses.WithLabelValues(owner, namespace, strconv.FormatBool(!v.Inject()), strings.Join(v.Reasons, ","), v.At).Inc()
}

// Admit answers one request. An error rejects the object.
func (a *Admitter) Admit(ctx context.Context, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	created := req.Operation == admissionv1.Create || req.Operation == ""
	if !created || req.Kind.Group != "" {
		return answer(req, nil)
	}
	switch req.Kind.Kind {
	case "Pod":
		return a.pod(ctx, req)
	case "Service":
		return a.service(ctx, req)
	}
	return answer(req, nil)
}

func (a *Admitter) pod(ctx context.Context, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if decide.Exempt(pod.Labels) {
		return answer(req, nil)
	}
	s, namespace, err := a.world(ctx, req)
	if err != nil {
		return nil, err
	}
	owner := decide.OwnerOf(&pod)
	verdict := decide.Pod(&pod, namespace, s.Values)
	kind := owner.Kind
	if kind == "" {
		kind = "pod"
	}
	a.count(kind, req.Namespace, verdict)
	name := pod.Name
	if name == "" {
		name = pod.GenerateName
	}
	log := slog.With(obs.Object(req.Namespace+"/"+name), slog.String("owner", owner.Kind+"/"+owner.Name))
	if !verdict.Inject() {
		log.InfoContext(ctx, "proxy not injected", obs.Reason(strings.Join(verdict.Reasons, ",")))
		opaque := decide.Opaque(pod.Annotations, namespace, decide.PodDefaults(&pod, s.Values.Proxy.OpaquePorts))
		return answer(req, annotate(pod.Annotations, opaque))
	}
	ops, warnings, err := patch.Pod(patch.Input{
		Pod: &pod, Namespace: req.Namespace, NamespaceAnnotations: namespace, Owner: owner,
		Values: s.Values, Anchors: s.Anchors, ControllerNamespace: a.ControllerNamespace,
	})
	for _, w := range warnings {
		log.WarnContext(ctx, "annotation is ignored", obs.Reason(w))
	}
	if err != nil {
		return nil, fmt.Errorf("making the proxy: %w", err)
	}
	log.InfoContext(ctx, "proxy injected", "annotation_at", verdict.At)
	resp, err := answer(req, ops)
	if err == nil {
		resp.Warnings = warnings // kubectl shows them to the one who made the pod
	}
	return resp, err
}

func (a *Admitter) service(ctx context.Context, req *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	var svc corev1.Service
	if err := json.Unmarshal(req.Object.Raw, &svc); err != nil {
		return nil, fmt.Errorf("reading the service: %w", err)
	}
	if decide.Exempt(svc.Labels) {
		return answer(req, nil)
	}
	s, namespace, err := a.world(ctx, req)
	if err != nil {
		return nil, err
	}
	opaque := decide.Opaque(svc.Annotations, namespace, decide.ServiceDefaults(&svc, s.Values.Proxy.OpaquePorts))
	if opaque != "" {
		a.count("service", req.Namespace, decide.Verdict{})
	}
	return answer(req, annotate(svc.Annotations, opaque))
}

// world is what a decision needs beside the object.
func (a *Admitter) world(ctx context.Context, req *admissionv1.AdmissionRequest) (*values.Settings, map[string]string, error) {
	s, err := a.Settings.Get()
	if err != nil {
		return nil, nil, err
	}
	namespace, err := a.Namespaces.Annotations(ctx, req.Namespace)
	if err != nil {
		return nil, nil, err
	}
	return s, namespace, nil
}

func annotate(there map[string]string, opaque string) []patch.Op {
	if opaque == "" {
		return nil
	}
	return patch.Annotate(there, decide.OpaqueAnnotation, opaque)
}

// answer admits the object with a patch; with no operations, as it is.
func answer(req *admissionv1.AdmissionRequest, ops []patch.Op) (*admissionv1.AdmissionResponse, error) {
	out := &admissionv1.AdmissionResponse{UID: req.UID, Allowed: true}
	if len(ops) == 0 {
		return out, nil
	}
	b, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	out.Patch, out.PatchType = b, &kind
	return out, nil
}

// refuse is the answer when something went wrong: the object is rejected, with
// the reason, since a pod must not start without the proxy it asked for.
func refuse(req *admissionv1.AdmissionRequest, err error) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		UID: req.UID,
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Message: err.Error(),
		},
	}
}
