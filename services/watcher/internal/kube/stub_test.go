package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// stub is an API server that speaks HTTP and JSON, for what only a real
// connection shows: how lists and watches are asked for and begun again.
type stub struct {
	t       *testing.T
	streams bool // it can send a first list as part of a watch
	// watched, if not nil, says how the n-th watch of a resource goes on after its
	// first list: nil ends it, else the event is sent and the watch goes on.
	watched func(resource string, n int) []event

	mu      sync.Mutex
	objects map[string][]any
	lists   map[string]int // answered
	watches map[string]int
	refused map[string]int // first lists that were asked of a watch in vain
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

type fields = map[string]any

// core are the resources of those kinds that are always there.
var core = []string{"endpointslices", "jobs", "namespaces", "nodes", "pods", "replicasets", "services"}

func newStub(t *testing.T) *stub {
	t.Helper()
	return &stub{t: t, objects: map[string][]any{}, lists: map[string]int{}, watches: map[string]int{}, refused: map[string]int{}}
}

func thing(name string, more fields) fields {
	o := fields{"metadata": fields{"name": name, "namespace": "grove", "uid": name, "resourceVersion": "7"}}
	for k, v := range more {
		if k == "metadata" {
			maps.Copy(o["metadata"].(fields), v.(fields))
			continue
		}
		o[k] = v
	}
	return o
}

var stubKinds = map[string][2]string{
	"endpointslices": {"EndpointSlice", "discovery.k8s.io/v1"}, "jobs": {"PartialObjectMetadata", "meta.k8s.io/v1"}, "namespaces": {"Namespace", "v1"},
	"nodes": {"PartialObjectMetadata", "meta.k8s.io/v1"}, "pods": {"Pod", "v1"}, "replicasets": {"PartialObjectMetadata", "meta.k8s.io/v1"}, "services": {"Service", "v1"},
}

func kinded(resource string, o any) any {
	out := fields{"kind": stubKinds[resource][0], "apiVersion": stubKinds[resource][1]}
	maps.Copy(out, o.(fields))
	return out
}

func failure(code int, reason string) fields {
	return fields{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": strings.ToLower(reason)}
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	say := func(v any) bool {
		err := json.NewEncoder(w).Encode(v)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		return err == nil
	}
	if _, ok := stubKinds[resource]; !ok { // there is no CRD
		w.WriteHeader(http.StatusNotFound)
		say(failure(http.StatusNotFound, "NotFound"))
		return
	}
	q := r.URL.Query()
	s.mu.Lock()
	objects := s.objects[resource]
	first := q.Get("sendInitialEvents") == "true"
	if first && !s.streams {
		s.refused[resource]++
		s.mu.Unlock()
		w.WriteHeader(http.StatusUnprocessableEntity)
		say(failure(http.StatusUnprocessableEntity, "Invalid"))
		return
	}
	if q.Get("watch") == "" {
		s.lists[resource]++
		s.mu.Unlock()
		items := []any{}
		for _, o := range objects {
			items = append(items, kinded(resource, o))
		}
		say(fields{"kind": stubKinds[resource][0] + "List", "apiVersion": stubKinds[resource][1], "metadata": fields{"resourceVersion": "9"}, "items": items})
		return
	}
	s.watches[resource]++
	n := s.watches[resource]
	s.mu.Unlock()
	if first {
		if q.Get("resourceVersionMatch") != "NotOlderThan" || q.Get("allowWatchBookmarks") != "true" {
			s.t.Errorf("a list is to be streamed, but the question is %s", r.URL.RawQuery)
		}
		for _, o := range objects {
			say(event{"ADDED", kinded(resource, o)})
		}
		say(event{"BOOKMARK", kinded(resource, fields{"metadata": fields{"resourceVersion": "9", "annotations": fields{"k8s.io/initial-events-end": "true"}}})})
	}
	if s.watched != nil {
		events := s.watched(resource, n)
		if events == nil {
			return
		}
		for _, e := range events {
			say(e)
		}
	}
	say(event{"BOOKMARK", kinded(resource, fields{"metadata": fields{"resourceVersion": "9"}})})
	<-r.Context().Done()
}

func (s *stub) counts(of map[string]int) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(of)
}

// source reads the stub.
func (s *stub) source() *rig {
	s.t.Helper()
	srv := httptest.NewServer(s)
	c, err := clients(&rest.Config{Host: srv.URL}, "weft-watcher/test")
	must(s.t, err)
	r := &rig{t: s.t, Source: New(c, Config{Rediscover: time.Minute, Log: slog.New(slog.DiscardHandler)})}
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run() = %v", err)
		}
		srv.CloseClientConnections()
		srv.Close()
	})
	return r
}
