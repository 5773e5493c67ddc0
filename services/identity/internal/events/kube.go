package events

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// component is what Linkerd's identity service calls itself in its events.
const component = "linkerd-identity"

// maxMessage is what the API server allows (bytes).
const maxMessage = 1024

// Kube writes events of the core group, which every kubectl shows. The object
// is plain JSON: the typed kinds would bring the whole core group into the
// binary for one call.
type Kube struct {
	client   rest.Interface
	instance string
}

// Connect makes the client; nothing is sent yet. instance is this process's
// name, the pod's in a cluster.
func Connect(cfg *rest.Config, instance string) (*Kube, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath = "/api"
	cfg.GroupVersion = &schema.GroupVersion{Version: "v1"}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making the client for events: %w", err)
	}
	return &Kube{client: client, instance: instance}, nil
}

// event is the part of a core/v1 Event that is written.
type event struct {
	APIVersion     string    `json:"apiVersion"`
	Kind           string    `json:"kind"`
	Metadata       metadata  `json:"metadata"`
	InvolvedObject reference `json:"involvedObject"`
	Reason         string    `json:"reason"`
	Message        string    `json:"message"`
	Source         source    `json:"source"`
	FirstTimestamp string    `json:"firstTimestamp"`
	LastTimestamp  string    `json:"lastTimestamp"`
	Count          int       `json:"count"`
	Type           string    `json:"type"`
	Component      string    `json:"reportingComponent"`
	Instance       string    `json:"reportingInstance"`
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

type reference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

type source struct {
	Component string `json:"component"`
}

// of is the object for an event at a time. Its name is unique enough: one
// process writes one event at a time.
func (k *Kube) of(e Event, at time.Time) event {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	message := e.Message
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	when := at.UTC().Format(time.RFC3339)
	return event{
		APIVersion: "v1", Kind: "Event",
		Metadata: metadata{Name: fmt.Sprintf("%s.%x", e.About.Name, at.UnixNano()), Namespace: e.About.Namespace},
		InvolvedObject: reference{
			APIVersion: e.About.APIVersion, Kind: e.About.Kind, Namespace: e.About.Namespace, Name: e.About.Name,
		},
		Reason: e.Reason, Message: message, Type: kind,
		Source: source{Component: component}, Component: component, Instance: k.instance,
		FirstTimestamp: when, LastTimestamp: when, Count: 1,
	}
}

// Post writes one event. That it is there already is no error: an answer to
// the first attempt was lost.
func (k *Kube) Post(ctx context.Context, e Event, at time.Time) error {
	body, err := json.Marshal(k.of(e, at))
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	err = k.client.Post().Namespace(e.About.Namespace).Resource("events").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("writing an event: %w", err)
	}
	return nil
}
