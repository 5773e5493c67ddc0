// Package serve is the webhook: it reads reviews, asks the rooms that decide,
// and answers with their patch. It decides nothing itself.
package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/injector/internal/decide"
	"github.com/weftmesh/weft/services/injector/internal/feed"
	"github.com/weftmesh/weft/services/injector/internal/patch"
	"github.com/weftmesh/weft/services/injector/internal/settings"
	"github.com/weftmesh/weft/services/kit/obs"
)

// source is read anew for each request.
type source interface {
	Get() (*settings.Settings, error)
}

// namespaces knows namespaces' annotations.
type namespaces interface {
	Annotations(ctx context.Context, namespace string) (map[string]string, error)
}

// Admitter answers admission requests.
type Admitter struct {
	Settings            source
	Namespaces          namespaces
	ControllerNamespace string

	counts *counts
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
	pod, err := decide.Read(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", said(err))
	}
	if decide.Exempt(pod.Labels) {
		return answer(req, nil)
	}
	s, namespace, err := a.world(ctx, req)
	if errors.Is(err, feed.ErrUnknown) && (a.vital(req.Namespace) || decide.Never(pod, s.Values)) {
		slog.WarnContext(ctx, "pod admitted as it is, its namespace is not known", object(req, pod.Name, pod.GenerateName))
		return answer(req, nil)
	}
	if err != nil {
		return nil, err
	}
	owner := decide.OwnerOf(pod)
	verdict := decide.Pod(pod, namespace, s.Values)
	kind := owner.Kind
	if kind == "" {
		kind = "pod"
	}
	a.counts.add(kind, req.Namespace, verdict, pod.Annotations)
	log := slog.With(object(req, pod.Name, pod.GenerateName), slog.String("owner", short(owner.Kind)+"/"+short(owner.Name)))
	if !verdict.Inject() {
		log.InfoContext(ctx, "proxy not injected", obs.Reason(strings.Join(verdict.Reasons, ",")))
		opaque, ok := decide.Opaque(pod.Annotations, namespace, decide.PodDefaults(pod, s.Values.Proxy.OpaquePorts))
		return answer(req, annotate(pod.Annotations, opaque, ok))
	}
	ops, warnings, err := patch.Pod(patch.Input{
		Pod: pod, Namespace: req.Namespace, NamespaceAnnotations: namespace, Owner: owner,
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
		return nil, fmt.Errorf("reading the service: %w", said(err))
	}
	if decide.Exempt(svc.Labels) {
		return answer(req, nil)
	}
	s, namespace, err := a.world(ctx, req)
	if errors.Is(err, feed.ErrUnknown) && a.vital(req.Namespace) {
		return answer(req, nil)
	}
	if err != nil {
		return nil, err
	}
	opaque, ok := decide.Opaque(svc.Annotations, namespace, decide.ServiceDefaults(&svc, s.Values.Proxy.OpaquePorts))
	if ok {
		a.counts.add("service", req.Namespace, decide.Verdict{}, svc.Annotations)
	}
	return answer(req, annotate(svc.Annotations, opaque, ok))
}

// object names what a review is about, in a log. Whoever is in the cluster can
// send a review, and what it says was not judged by an API server then.
func object(req *admissionv1.AdmissionRequest, names ...string) slog.Attr {
	return obs.Object(short(req.Namespace) + "/" + short(cmp.Or(names...)))
}

// short is a name as it may be: Kubernetes' have 253 bytes at most.
func short(name string) string { return name[:min(len(name), 253)] }

// said is an error of decoding without the names of our types: the one who
// wrote the object reads it.
func said(err error) error {
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
		return fmt.Errorf("its field %s is a JSON %s, which cannot be", bad.Field, bad.Value)
	}
	return err
}

// world is what a decision needs beside the object. The settings are there with
// feed.ErrUnknown, too.
func (a *Admitter) world(ctx context.Context, req *admissionv1.AdmissionRequest) (*settings.Settings, map[string]string, error) {
	s, err := a.Settings.Get()
	if err != nil {
		return nil, nil, err
	}
	namespace, err := a.Namespaces.Annotations(ctx, req.Namespace)
	return s, namespace, err
}

// vital: without what is in these namespaces the bus would never tell.
func (a *Admitter) vital(namespace string) bool {
	return namespace == "kube-system" || namespace == a.ControllerNamespace
}

func annotate(there map[string]string, opaque string, wanted bool) []patch.Op {
	if !wanted {
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
