package diag

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// kind is a resource that has pods.
type kind struct {
	name  string
	short []string
	gvr   schema.GroupVersionResource
}

var kinds = []kind{
	{"cronjob", []string{"cj"}, kube.CronJobs},
	{"daemonset", []string{"ds"}, kube.DaemonSets},
	{"deployment", []string{"deploy"}, kube.Deployments},
	{"job", nil, kube.Jobs},
	{"namespace", []string{"ns"}, kube.Namespaces},
	{"pod", []string{"po"}, kube.Pods},
	{"replicaset", []string{"rs"}, kube.ReplicaSets},
	{"replicationcontroller", []string{"rc"}, kube.Controllers},
	{"service", []string{"svc"}, kube.Services},
	{"statefulset", []string{"sts"}, kube.StatefulSets},
}

// resource is what a person named: "deploy/web".
type resource struct {
	kind
	object string
}

// parse reads a resource as kubectl writes it.
func parse(text string) (resource, error) {
	name, object, ok := strings.Cut(text, "/")
	if ok && object != "" && !strings.Contains(object, "/") {
		for _, k := range kinds {
			if low := strings.ToLower(name); low == k.name || low == k.name+"s" || slices.Contains(k.short, low) {
				return resource{k, object}, nil
			}
		}
	}
	var all []string
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return resource{}, &say.Problem{
		Code: usage.Exit, What: fmt.Sprintf("%q is no resource", text), Why: "known kinds: " + strings.Join(all, ", "), Next: "name it as KIND/NAME, for example deploy/web",
	}
}

// podsOf finds the pods of a resource, by name.
func podsOf(ctx context.Context, d Door, ns string, r resource) ([]corev1.Pod, error) {
	if r.gvr == kube.Namespaces {
		ns = r.object
		if _, err := d.Get(ctx, kube.Namespaces, "", ns); err != nil {
			return nil, err
		}
		return listPods(ctx, d, ns, "")
	}
	obj, err := d.Get(ctx, r.gvr, ns, r.object)
	if err != nil {
		return nil, err
	}
	switch r.gvr {
	case kube.Pods:
		var p corev1.Pod
		if err := decode(obj, &p); err != nil {
			return nil, err
		}
		return []corev1.Pod{p}, nil
	case kube.CronJobs:
		return podsOfCronJob(ctx, d, ns, obj)
	}
	selector, err := selectorOf(obj)
	if err != nil {
		return nil, err
	}
	if selector == "" {
		return nil, &say.Problem{What: fmt.Sprintf("%s %s/%s selects no pods: it has no selector", r.name, ns, r.object), Next: "name a workload or a pod"}
	}
	pods, err := listPods(ctx, d, ns, selector)
	if err != nil || r.gvr == kube.Services {
		return pods, err
	}
	// A selector may match another workload's pods, too.
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return r.gvr != kube.Deployments && !owned(&p, obj) }), nil
}

func owned(p *corev1.Pod, by *unstructured.Unstructured) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == by.GetUID() })
}

// selectorOf is an object's spec.selector, in either of its two forms.
func selectorOf(obj *unstructured.Unstructured) (string, error) {
	raw, _, err := unstructured.NestedMap(obj.Object, "spec", "selector")
	if err != nil {
		return "", fmt.Errorf("reading the selector of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	if len(raw) == 0 {
		return "", nil
	}
	if kind := obj.GetKind(); kind == "Service" || kind == "ReplicationController" {
		plain, _, err := unstructured.NestedStringMap(obj.Object, "spec", "selector")
		if err != nil {
			return "", fmt.Errorf("reading the selector of %s %s: %w", kind, obj.GetName(), err)
		}
		return labels.SelectorFromSet(plain).String(), nil
	}
	var s metav1.LabelSelector
	if err := decode(&unstructured.Unstructured{Object: raw}, &s); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return "", fmt.Errorf("reading the selector of %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	return selector.String(), nil
}

func podsOfCronJob(ctx context.Context, d Door, ns string, cron *unstructured.Unstructured) ([]corev1.Pod, error) {
	jobs, err := d.List(ctx, kube.Jobs, ns, "")
	if err != nil {
		return nil, err
	}
	all, err := listPods(ctx, d, ns, "")
	if err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for i := range jobs {
		if !slices.ContainsFunc(jobs[i].GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == cron.GetUID() }) {
			continue
		}
		for _, p := range all {
			if owned(&p, &jobs[i]) {
				pods = append(pods, p)
			}
		}
	}
	return pods, nil
}

func listPods(ctx context.Context, d Door, ns, selector string) ([]corev1.Pod, error) {
	objects, err := d.List(ctx, kube.Pods, ns, selector)
	if err != nil {
		return nil, err
	}
	pods := make([]corev1.Pod, len(objects))
	for i := range objects {
		if err := decode(&objects[i], &pods[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

// serving finds a pod of the control plane that listens on port, or takes the
// one that was named.
func serving(ctx context.Context, d Door, ns, named string, port int32, what string) (string, error) {
	if named != "" {
		return named, nil
	}
	pods, err := listPods(ctx, d, ns, "linkerd.io/control-plane-component")
	if err != nil {
		return "", err
	}
	for i := range pods {
		if listens(&pods[i], port) && ready(&pods[i]) {
			return pods[i].Name, nil
		}
	}
	return "", &say.Problem{
		What: fmt.Sprintf("no pod of namespace %s serves %s", ns, what), Why: fmt.Sprintf("none of the control plane's pods is ready and has a container port %d", port),
		Next: "weft check; name another namespace with --linkerd-namespace",
	}
}

func listens(p *corev1.Pod, port int32) bool {
	for _, c := range p.Spec.Containers {
		if slices.ContainsFunc(c.Ports, func(have corev1.ContainerPort) bool { return have.ContainerPort == port }) {
			return true
		}
	}
	return false
}

func ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
