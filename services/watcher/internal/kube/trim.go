package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/weftmesh/weft/services/watcher/internal/census"
	"github.com/weftmesh/weft/services/watcher/internal/external"
	"github.com/weftmesh/weft/services/watcher/internal/shape"
)

// trim cuts an object down to what shape reads, before it is kept: of a pod of
// 10 KB some hundred bytes stay. A custom object is decoded here; one that can't
// be is kept as a *shape.Bad, so that its kind goes on. trim never changes the
// object it is given, and what it has trimmed it leaves as it is.
func trim(kind shape.Kind) cache.TransformFunc {
	return func(obj any) (any, error) {
		switch o := obj.(type) {
		case *corev1.Namespace:
			out := &corev1.Namespace{ObjectMeta: trimMeta(&o.ObjectMeta, census.NamespaceLabel, shape.MeshAnnotation)}
			if at := census.Annotated(o); at != nil {
				out.ManagedFields = []metav1.ManagedFieldsEntry{{Time: at, FieldsV1: annotated}}
			}
			return out, nil
		case *corev1.Pod:
			return trimPod(o), nil
		case *corev1.Service:
			return trimService(o), nil
		case *discoveryv1.EndpointSlice:
			return trimSlice(o), nil
		case *metav1.PartialObjectMetadata:
			return &metav1.PartialObjectMetadata{ObjectMeta: trimMeta(&o.ObjectMeta, zoneLabel, nil)}, nil
		case *unstructured.Unstructured:
			return decode(kind, o), nil
		}
		return obj, nil
	}
}

// annotated is all that is kept of a namespace's managed fields, beside their
// time; trimmed once more, it stays.
var annotated = metav1.NewFieldsV1(`{"f:linkerd.io/inject":{}}`)

func zoneLabel(key string) bool { return key == corev1.LabelTopologyZone }

func decode(kind shape.Kind, u *unstructured.Unstructured) metav1.Object {
	raw, err := u.MarshalJSON()
	if err != nil {
		bad := shape.Wrong(kind, nil, "", "can't be read again: "+err.Error())
		bad.Name, bad.Namespace, bad.UID = u.GetName(), u.GetNamespace(), u.GetUID()
		bad.ResourceVersion = u.GetResourceVersion()
		return bad
	}
	obj := shape.Decode(kind, raw)
	obj.SetResourceVersion(u.GetResourceVersion())
	obj.SetManagedFields(nil)
	obj.SetFinalizers(nil)
	obj.SetLabels(keep(obj.GetLabels(), shape.KindLabel(kind)))
	obj.SetAnnotations(keep(obj.GetAnnotations(), shape.MeshAnnotation))
	if kind != shape.ExternalWorkloads { // whose owner is read
		obj.SetOwnerReferences(nil)
	}
	return obj
}

func trimMeta(m *metav1.ObjectMeta, labels, annotations func(string) bool) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name:              m.Name,
		Namespace:         m.Namespace,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
		Labels:            keep(m.Labels, labels),
		Annotations:       keep(m.Annotations, annotations),
	}
	for _, o := range m.OwnerReferences {
		out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: o.UID})
	}
	return out
}

func keep(m map[string]string, want func(string) bool) map[string]string {
	if want == nil {
		return nil
	}
	var out map[string]string
	for k, v := range m {
		if want(k) {
			if out == nil {
				out = make(map[string]string)
			}
			out[k] = v
		}
	}
	return out
}

func all(string) bool { return true }

func trimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: trimMeta(&p.ObjectMeta, all, shape.MeshAnnotation),
		Spec: corev1.PodSpec{
			NodeName:           p.Spec.NodeName,
			HostNetwork:        p.Spec.HostNetwork,
			ServiceAccountName: p.Spec.ServiceAccountName,
			Hostname:           p.Spec.Hostname,
			Subdomain:          p.Spec.Subdomain,
			InitContainers:     trimContainers(p.Spec.InitContainers),
			Containers:         trimContainers(p.Spec.Containers),
		},
		Status: corev1.PodStatus{
			Phase:   p.Status.Phase,
			PodIP:   p.Status.PodIP,
			PodIPs:  p.Status.PodIPs,
			HostIP:  p.Status.HostIP,
			HostIPs: p.Status.HostIPs,
		},
	}
	if census.OnWindows(&p.Spec) { // all that is read of selectors and affinity
		out.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
			break
		}
	}
	return out
}

func trimContainers(list []corev1.Container) []corev1.Container {
	if len(list) == 0 {
		return nil
	}
	out := make([]corev1.Container, len(list))
	for i := range list {
		c := &list[i]
		out[i] = corev1.Container{
			Name:           c.Name,
			Ports:          c.Ports,
			RestartPolicy:  c.RestartPolicy,
			LivenessProbe:  trimProbe(c.LivenessProbe),
			ReadinessProbe: trimProbe(c.ReadinessProbe),
			StartupProbe:   trimProbe(c.StartupProbe),
		}
		if census.SidecarImage(c.Image) {
			out[i].Image = c.Image
		}
		if c.Name != shape.ProxyContainer {
			continue
		}
		for _, e := range c.Env {
			if shape.ProxyEnv(e.Name) {
				out[i].Env = append(out[i].Env, corev1.EnvVar{Name: e.Name, Value: e.Value})
			}
		}
	}
	return out
}

func trimProbe(p *corev1.Probe) *corev1.Probe {
	switch {
	case p == nil:
	case p.HTTPGet != nil:
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: p.HTTPGet.Path, Port: p.HTTPGet.Port},
		}}
	case p.GRPC != nil:
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: p.GRPC.Port}}}
	}
	return nil
}

func trimService(s *corev1.Service) *corev1.Service {
	return &corev1.Service{
		// Labels are copied to the slices of external workloads.
		ObjectMeta: trimMeta(&s.ObjectMeta, all, shape.MeshAnnotation),
		Spec: corev1.ServiceSpec{
			Type:                  s.Spec.Type,
			Selector:              s.Spec.Selector,
			IPFamilies:            s.Spec.IPFamilies,
			ClusterIP:             s.Spec.ClusterIP,
			ClusterIPs:            s.Spec.ClusterIPs,
			Ports:                 s.Spec.Ports,
			InternalTrafficPolicy: s.Spec.InternalTrafficPolicy,
		},
	}
}

func trimSlice(es *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	ours := external.Manages(es) // which are compared as a whole
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: trimMeta(&es.ObjectMeta, func(key string) bool {
			return ours || key == discoveryv1.LabelServiceName || key == shape.LabelClusterName
		}, shape.MeshAnnotation),
		AddressType: es.AddressType,
		Ports:       es.Ports,
		Endpoints:   make([]discoveryv1.Endpoint, len(es.Endpoints)),
	}
	for i := range es.Endpoints {
		e := &es.Endpoints[i]
		out.Endpoints[i] = discoveryv1.Endpoint{
			Addresses:  e.Addresses,
			Conditions: e.Conditions,
			Hostname:   e.Hostname,
			NodeName:   e.NodeName,
			Zone:       e.Zone,
			Hints:      e.Hints,
		}
		if r := e.TargetRef; r != nil {
			out.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
			if ours {
				out.Endpoints[i].TargetRef.UID = r.UID
			}
		}
	}
	return out
}
