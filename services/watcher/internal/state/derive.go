package state

import (
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// spoil notes in which namespaces derived endpoints may have changed.
func (s *State) spoil(id shape.ID, seen time.Time) {
	switch id.Kind {
	case shape.Pod, shape.ExternalWorkloads, shape.Service, shape.EndpointSlice:
		s.spoilNamespace(id.Namespace, seen)
	case shape.Node:
		// A node's zone is in the endpoints of its pods, wherever they are.
		for namespace := range s.derived {
			s.spoilNamespace(namespace, seen)
		}
	}
}

func (s *State) spoilNamespace(namespace string, seen time.Time) {
	if _, already := s.stale[namespace]; !already {
		s.stale[namespace] = seen
	}
}

// Settle makes the rows that follow from several objects, once for all events
// applied since the last time. The cost is services times pods of a namespace,
// which suits a directory of manifests, the only source that needs it.
func (s *State) Settle() {
	for namespace, seen := range s.stale {
		delete(s.stale, namespace)
		s.derive(namespace, seen)
	}
}

func (s *State) derive(namespace string, seen time.Time) {
	var pods []*corev1.Pod
	var externals []*shape.ExternalWorkload
	// Workloads that are bad now keep their last good rows, endpoints included.
	bad := make(map[string]bool)
	s.objects.List(shape.Pod, namespace, func(obj metav1.Object) {
		if pod, ok := obj.(*corev1.Pod); ok && s.good(shape.Pod, obj) {
			pods = append(pods, pod)
			return
		}
		bad[shape.WorkloadKey(busv1.Workload_KIND_POD, namespace, obj.GetName())] = true
	})
	s.objects.List(shape.ExternalWorkloads, namespace, func(obj metav1.Object) {
		if e, ok := obj.(*shape.ExternalWorkload); ok && s.good(shape.ExternalWorkloads, obj) {
			externals = append(externals, e)
			return
		}
		bad[shape.WorkloadKey(busv1.Workload_KIND_EXTERNAL, namespace, obj.GetName())] = true
	})
	zone := func(node string) string {
		if n := s.objects.Get(shape.ID{Kind: shape.Node, Name: node}); n != nil {
			return shape.Zone(n.GetLabels())
		}
		return ""
	}

	sets := make(map[shape.ID]struct{})
	s.objects.List(shape.Service, namespace, func(obj metav1.Object) {
		service, ok := obj.(*corev1.Service)
		id := shape.IDOf(shape.Service, obj)
		if !ok || !shape.Derives(service) || !s.good(shape.Service, obj) || s.slices[id] > 0 {
			return
		}
		set := shape.DerivedID(namespace, service.Name)
		sets[set] = struct{}{}
		rows := shape.Derive(service, pods, externals, zone)
		if k := s.known[set]; k != nil && len(bad) > 0 {
			rows = append(rows, s.endpointsOf(k, bad)...)
		}
		values, tooLarge := encode(id, rows)
		if tooLarge != nil {
			return
		}
		k := s.known[set]
		if k == nil {
			k = new(object)
			s.known[set] = k
		}
		s.set(k, rows, values, seen)
	})
	for set := range s.derived[namespace] {
		if _, still := sets[set]; still {
			continue
		}
		if k := s.known[set]; k != nil {
			if _, bad := s.skipped[shape.ID{Kind: shape.Service, Namespace: set.Namespace, Name: set.Name}]; bad {
				sets[set] = struct{}{} // the bad Service keeps its row, so it keeps these
				continue
			}
			s.set(k, nil, nil, seen)
			delete(s.known, set)
		}
	}
	if len(sets) == 0 {
		delete(s.derived, namespace)
		return
	}
	s.derived[namespace] = sets
}

// endpointsOf finds the endpoints that k made earlier for some workloads.
func (s *State) endpointsOf(k *object, workloads map[string]bool) []shape.Row {
	var out []shape.Row
	for _, at := range k.refs {
		e := new(busv1.Endpoint)
		if proto.Unmarshal(s.rows[at].value, e) == nil && workloads[e.Workload] {
			out = append(out, shape.Row{Table: at.table, Key: at.key, Message: e})
		}
	}
	return out
}

// good tells whether an object's newest version is the one that made its rows.
func (s *State) good(kind shape.Kind, obj metav1.Object) bool {
	_, bad := s.skipped[shape.IDOf(kind, obj)]
	return !bad
}
