package herald

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/watcher/internal/census"
)

// tell writes one event, or renews it.
func (h *Herald) tell(ctx context.Context, n *census.Notice) bool {
	ctx, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	now := time.Now()
	t := h.told[n.Key]
	e := h.event(n, now)
	var err error
	if t != nil && t.written {
		err = h.renew(ctx, e)
	} else if err = h.events.Create(ctx, e); apierrors.IsAlreadyExists(err) {
		err = nil // an earlier leader told it
	}
	result := "ok"
	if err != nil {
		result = "failed"
	}
	h.written.WithLabelValues(e.Reason, result).Inc()
	if err == nil {
		h.refused.Over()
		h.told[n.Key] = &told{due: now.Add(again), written: true, looks: h.looks}
		return true
	}
	h.refused.Hear(err)
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && !retriable(err) {
		h.told[n.Key] = &told{due: now.Add(failed), looks: h.looks}
	}
	return false
}

// retriable: the same request may well go through at the next look.
func retriable(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}

func (h *Herald) renew(ctx context.Context, e *corev1.Event) error {
	patch, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp})
	if err != nil {
		return err
	}
	err = h.events.Patch(ctx, e.Namespace, e.Name, patch)
	if apierrors.IsNotFound(err) { // it has lived its hour
		err = h.events.Create(ctx, e)
	}
	return err
}

func (h *Herald) event(n *census.Notice, now time.Time) *corev1.Event {
	at := metav1.NewTime(now)
	e := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: n.About.Namespace, Name: name(n)},
		InvolvedObject:      n.About,
		Type:                corev1.EventTypeNormal,
		Reason:              reasonInjected,
		Message:             n.Text,
		Source:              corev1.EventSource{Component: component},
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               int32(min(n.Pods, 1<<30)),
		ReportingController: component,
		ReportingInstance:   h.cfg.Instance,
	}
	if n.Warning {
		e.Type, e.Reason = corev1.EventTypeWarning, reasonSkipped
	}
	return e
}

// name is the same in every process, so that a new leader's attempt to tell what
// was told meets the event that is there.
func name(n *census.Notice) string {
	const most = 253 - 1 - 2*len(census.Key{})
	about := n.About.Name
	if len(about) > most {
		about = strings.TrimRight(about[:most], "-.")
	}
	return about + "." + n.Key.String()
}
