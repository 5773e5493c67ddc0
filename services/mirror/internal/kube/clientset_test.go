package kube_test

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/gentype"
	clienttesting "k8s.io/client-go/testing"
)

// clientset is client-go's fake of the kinds that are used here. Its own
// clientset knows every group of Kubernetes: a minute and a half of compiling.
type clientset struct{ clienttesting.Fake }

func newClientset(held ...runtime.Object) *clientset {
	s := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, discoveryv1.AddToScheme)
	if err := add.AddToScheme(s); err != nil {
		panic(err)
	}
	tracker := clienttesting.NewObjectTracker(s, serializer.NewCodecFactory(s).UniversalDecoder())
	for _, o := range held {
		if err := tracker.Add(o); err != nil {
			panic(err)
		}
	}
	c := new(clientset)
	c.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	c.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace())
		return true, w, err
	})
	return c
}

type object interface {
	runtime.Object
	metav1.Object
}

// fakeOf is the fake client of one kind, O, with lists, M.
func fakeOf[O, M any, T interface {
	*O
	object
}, L interface {
	*M
	runtime.Object
}](c *clientset, namespace string, gv schema.GroupVersion, resource, kind string, meta func(L) *metav1.ListMeta, items func(L) *[]O) *gentype.FakeClientWithList[T, L] {
	return gentype.NewFakeClientWithList(&c.Fake, namespace, gv.WithResource(resource), gv.WithKind(kind),
		func() T { return new(O) }, func() L { return new(M) },
		func(dst, src L) { *meta(dst) = *meta(src) },
		func(list L) []T {
			var all []T
			for i := range *items(list) {
				all = append(all, &(*items(list))[i])
			}
			return all
		},
		func(list L, all []T) {
			*items(list) = nil
			for _, one := range all {
				*items(list) = append(*items(list), *one)
			}
		})
}

func (c *clientset) Namespaces() *gentype.FakeClientWithList[*corev1.Namespace, *corev1.NamespaceList] {
	return fakeOf(c, "", corev1.SchemeGroupVersion, "namespaces", "Namespace",
		func(l *corev1.NamespaceList) *metav1.ListMeta { return &l.ListMeta }, func(l *corev1.NamespaceList) *[]corev1.Namespace { return &l.Items })
}

func (c *clientset) Services(ns string) *gentype.FakeClientWithList[*corev1.Service, *corev1.ServiceList] {
	return fakeOf(c, ns, corev1.SchemeGroupVersion, "services", "Service",
		func(l *corev1.ServiceList) *metav1.ListMeta { return &l.ListMeta }, func(l *corev1.ServiceList) *[]corev1.Service { return &l.Items })
}

func (c *clientset) Slices(ns string) *gentype.FakeClientWithList[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	return fakeOf(c, ns, discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice",
		func(l *discoveryv1.EndpointSliceList) *metav1.ListMeta { return &l.ListMeta },
		func(l *discoveryv1.EndpointSliceList) *[]discoveryv1.EndpointSlice { return &l.Items })
}
