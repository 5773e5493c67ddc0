package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
)

// Meta is what every object has.
type Meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
	OwnerReferences   []struct {
		Kind       string `json:"kind"`
		Controller bool   `json:"controller"`
	} `json:"ownerReferences"`
}

// Container is one of a pod's containers.
type Container struct {
	Name            string `json:"name"`
	SecurityContext *struct {
		RunAsUser *int64 `json:"runAsUser"`
	} `json:"securityContext"`
}

// Terminated is how a container ended.
type Terminated struct {
	ExitCode int `json:"exitCode"`
}

// State is one state of a container.
type State struct {
	Terminated *Terminated `json:"terminated"`
}

// ContainerStatus is how a container fares.
type ContainerStatus struct {
	Name      string `json:"name"`
	State     State  `json:"state"`
	LastState State  `json:"lastState"`
}

// Pod is what is read of a pod.
type Pod struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		Containers      []Container `json:"containers"`
		InitContainers  []Container `json:"initContainers"`
		SecurityContext *struct {
			RunAsUser *int64 `json:"runAsUser"`
		} `json:"securityContext"`
	} `json:"spec"`
	Status struct {
		Phase                 string            `json:"phase"`
		InitContainerStatuses []ContainerStatus `json:"initContainerStatuses"`
	} `json:"status"`
}

// Container finds one by name among all that run long or first, so that a proxy
// is found as a native sidecar too; nil if there is none.
func (p *Pod) Container(name string) *Container {
	for _, list := range [][]Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// Namespace is what is read of a namespace.
type Namespace struct {
	Metadata Meta `json:"metadata"`
}

// Service is what is read of a service.
type Service struct {
	Spec struct {
		Ports []struct {
			Port       int             `json:"port"`
			TargetPort json.RawMessage `json:"targetPort"` // a number or a name
		} `json:"ports"`
	} `json:"spec"`
}

// PodList is a list of pods.
type PodList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Items []Pod `json:"items"`
}

// PodPath is where a pod is.
func PodPath(namespace, name string) string {
	return "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
}

// Event is one line of a watch.
type Event struct {
	Type string // ADDED, MODIFIED, DELETED, BOOKMARK
	Pod  Pod
}

// WatchPods yields changes after the resource version in query until the API
// server ends the stream, which it does every few minutes; an error is the last
// thing yielded. A version that is too old ends in a Status with code 410.
func (c *Client) WatchPods(ctx context.Context, query url.Values) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		query.Set("watch", "true")
		query.Set("allowWatchBookmarks", "true")
		res, err := c.send(ctx, http.MethodGet, "/api/v1/pods", query, nil)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer func() { _ = res.Body.Close() }()
		lines := json.NewDecoder(res.Body)
		for {
			var raw struct {
				Type   string          `json:"type"`
				Object json.RawMessage `json:"object"`
			}
			if err := lines.Decode(&raw); err != nil {
				if err != io.EOF {
					yield(Event{}, fmt.Errorf("watching pods: %w", err))
				}
				return
			}
			if raw.Type == "ERROR" {
				var s Status
				_ = json.Unmarshal(raw.Object, &s) // its names are Status's, case aside; an empty one is an error too
				yield(Event{}, &s)
				return
			}
			event := Event{Type: raw.Type}
			if err := json.Unmarshal(raw.Object, &event.Pod); err != nil {
				yield(Event{}, fmt.Errorf("decoding a watched pod: %w", err))
				return
			}
			if !yield(event, nil) {
				return
			}
		}
	}
}
