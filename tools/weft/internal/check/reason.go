package check

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/diag/scrape"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// reasonTime bounds the question why a pod is not ready: the check itself has
// its answer already.
const reasonTime = 5 * time.Second

// reasons says, by pod, why pods are not ready: what a process that runs says
// itself, and what Kubernetes last complained about for one that does not.
// Where nothing is known there is no reason.
func (w *World) reasons(ctx context.Context, pods []corev1.Pod) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, reasonTime)
	defer cancel()
	var waiting []corev1.Pod
	pending := false
	for i := range pods {
		switch p := &pods[i]; {
		case judge.Waiting(p):
			waiting = append(waiting, *p)
		case p.Status.Phase == corev1.PodPending:
			pending = true
		}
	}
	all := make(map[string]string)
	if pending {
		all = w.complaints(ctx)
	}
	answers := scrape.Each(ctx, waiting, w.notReady)
	for i, said := range answers {
		if said != "" {
			all[waiting[i].Name] = said
		}
	}
	return all
}

// notReady is what a process answers to a readiness probe.
func (w *World) notReady(ctx context.Context, p corev1.Pod) string {
	for _, t := range scrape.Admin(&p, scrape.NotProxy) {
		t.Path = "/ready"
		var refused *scrape.StatusError
		if _, err := scrape.Get(ctx, w.door, t); errors.As(err, &refused) {
			return strings.TrimPrefix(refused.Said, "not ready\n")
		}
	}
	return ""
}

// complaints are the newest warnings about pods of the control plane, by pod.
func (w *World) complaints(ctx context.Context) map[string]string {
	all := make(map[string]string)
	events, err := list[corev1.Event](ctx, w.door, kube.Events, w.Namespace, "")
	if err != nil {
		return all // a reason more or less; that the pod is not ready is told anyway
	}
	newest := make(map[string]time.Time)
	for _, e := range events {
		pod := e.InvolvedObject.Name
		if e.Type != corev1.EventTypeWarning || e.InvolvedObject.Kind != "Pod" {
			continue
		}
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		if last, known := newest[pod]; !known || at.After(last) {
			newest[pod], all[pod] = at, e.Reason+": "+e.Message
		}
	}
	return all
}
