package robust

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weftmesh/weft/e2e/internal/chronicle"
)

// The topics that clients ask for.
const (
	web    = "web"    // endpoints come and go
	steady = "steady" // so they do here, but two stay
	calm   = "calm"   // nothing ever happens
	guard  = "guard"  // whom a port lets in
)

const port = 8080

// Paths of the API's lists.
const (
	pathNamespaces = "/api/v1/namespaces"
	pathServices   = "/api/v1/services"
	pathPods       = "/api/v1/pods"
	pathSlices     = "/apis/discovery.k8s.io/v1/endpointslices"
	pathServers    = "/apis/policy.linkerd.io/v1beta3/servers"
	pathClients    = "/apis/policy.linkerd.io/v1alpha1/meshtlsauthentications"
	pathPolicies   = "/apis/policy.linkerd.io/v1alpha1/authorizationpolicies"
)

// source changes what there is in Kubernetes, and notes it first.
type source struct {
	house *house
	rng   *rand.Rand
	next  int
	pods  map[string][]int // by service, those with an endpoint
	stay  map[string]int   // how many of them are never removed
	shift int              // of the guard: whom it lets in
}

// newSource writes what there is from the beginning.
func newSource(h *house, rng *rand.Rand) *source {
	s := &source{house: h, rng: rng, pods: map[string][]int{}, stay: map[string]int{web: 0, steady: 2, calm: 1}}
	h.api.put(pathNamespaces, "", "shop", object{"apiVersion": "v1", "kind": "Namespace"})
	for i, name := range []string{web, steady, calm} {
		h.api.put(pathServices, "shop", name, object{"apiVersion": "v1", "kind": "Service", "spec": object{
			"clusterIP": fmt.Sprint("10.96.0.", i+1), "clusterIPs": []any{fmt.Sprint("10.96.0.", i+1)}, "selector": object{"app": name},
			"ports": []any{object{"name": "http", "port": port, "targetPort": port}},
		}})
		for range max(1, s.stay[name]) {
			s.makePod(name)
		}
		s.slice(name)
	}
	h.api.put(pathPods, "shop", guard, pod(guard, guard, "10.9.0.1"))
	h.api.put(pathServers, "shop", guard, object{"apiVersion": "policy.linkerd.io/v1beta3", "kind": "Server", "spec": object{
		"podSelector": object{"matchLabels": object{"app": guard}}, "port": port, "proxyProtocol": "HTTP/1", "accessPolicy": "deny",
	}})
	s.changeGuard()
	h.api.put(pathPolicies, "shop", guard, object{"apiVersion": "policy.linkerd.io/v1alpha1", "kind": "AuthorizationPolicy", "spec": object{
		"targetRef":                  object{"group": "policy.linkerd.io", "kind": "Server", "name": guard},
		"requiredAuthenticationRefs": []any{object{"group": "policy.linkerd.io", "kind": "MeshTLSAuthentication", "name": guard}},
	}})
	return s
}

// pod is a running, ready, meshed pod.
func pod(name, app, ip string) object {
	env := func(name, value string) object {
		return object{"name": "LINKERD2_PROXY_" + name + "_LISTEN_ADDR", "value": value}
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "labels": object{"app": app, "linkerd.io/control-plane-ns": "linkerd"}},
		"spec": object{"serviceAccountName": app, "nodeName": "here", "containers": []any{
			object{"name": "app", "image": "app", "ports": []any{object{"name": "http", "containerPort": port}}},
			object{"name": "linkerd-proxy", "image": "proxy", "env": []any{env("INBOUND", "0.0.0.0:4143"), env("ADMIN", "0.0.0.0:4191"), env("CONTROL", "0.0.0.0:4190")}},
		}},
		"status": object{
			"phase": "Running", "podIP": ip, "podIPs": []any{object{"ip": ip}},
			"conditions": []any{object{"type": "Ready", "status": "True"}},
		},
	}
}

// ip is a pod's own for ever.
func ip(n int) string { return fmt.Sprintf("10.%d.%d.%d", 1+n>>16, n>>8&255, n&255) }

func (s *source) makePod(service string) {
	n := s.next
	s.next++
	s.pods[service] = append(s.pods[service], n)
	s.house.api.put(pathPods, "shop", fmt.Sprint(service, "-", n), pod(fmt.Sprint(service, "-", n), service, ip(n)))
}

// slice writes a service's slice as its pods are.
func (s *source) slice(service string) {
	var names []string
	endpoints := []any{}
	for _, n := range s.pods[service] {
		names = append(names, fmt.Sprintf("%s:%d", ip(n), port))
		endpoints = append(endpoints, object{
			"addresses": []any{ip(n)}, "conditions": object{"ready": true}, "nodeName": "here",
			"targetRef": object{"kind": "Pod", "namespace": "shop", "name": fmt.Sprint(service, "-", n)},
		})
	}
	s.house.log.Add(chronicle.Event{What: chronicle.Wrote, Topic: service, Items: names})
	s.house.api.put(pathSlices, "shop", service+"-x", object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": object{"labels": object{"kubernetes.io/service-name": service}},
		"ports":    []any{object{"name": "http", "port": port, "protocol": "TCP"}}, "endpoints": endpoints,
	})
}

// changeGuard lets another client in, and the one before in no more.
func (s *source) changeGuard() {
	s.shift++
	name := fmt.Sprintf("client-%d.shop", s.shift)
	s.house.log.Add(chronicle.Event{What: chronicle.Wrote, Topic: guard, Items: []string{name}})
	s.house.api.put(pathClients, "shop", guard, object{"apiVersion": "policy.linkerd.io/v1alpha1", "kind": "MeshTLSAuthentication", "spec": object{
		"identities": []any{name + identitySuffix},
	}})
}

const identitySuffix = ".serviceaccount.identity.linkerd.cluster.local"

// always are the names that are there all the time.
func (s *source) always() map[string][]string {
	out := map[string][]string{}
	for service, n := range s.stay {
		for _, pod := range s.pods[service][:n] {
			out[service] = append(out[service], fmt.Sprintf("%s:%d", ip(pod), port))
		}
	}
	return out
}

// crowd changes many pods that nobody asks for. What a reader missed is then
// soon more than a snapshot.
func (s *source) crowd() {
	pods := map[string]object{}
	for i := range 300 {
		name := fmt.Sprint("crowd-", i)
		labels := object{"app": "crowd", "linkerd.io/control-plane-ns": "linkerd"}
		for j := range 10 {
			word := make([]byte, 60)
			for k := range word {
				word[k] = 'a' + byte(s.rng.IntN(26))
			}
			labels[fmt.Sprint("label-", j)] = string(word)
		}
		p := pod(name, "crowd", fmt.Sprintf("10.200.%d.%d", i>>8, i&255))
		p["metadata"] = object{"labels": labels}
		pods[name] = p
	}
	s.house.api.putMany(pathPods, "shop", pods)
}

// run changes things until ctx ends, about ten times a second.
func (s *source) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(20+s.rng.IntN(160)) * time.Millisecond):
		}
		if s.rng.IntN(40) == 0 {
			s.crowd()
			continue
		}
		service := []string{web, steady}[s.rng.IntN(2)]
		switch at := s.stay[service]; s.rng.IntN(5) {
		case 0:
			s.changeGuard()
		case 1, 2:
			if len(s.pods[service]) < 12 {
				s.makePod(service)
				s.slice(service)
			}
		default:
			if n := len(s.pods[service]); n > at {
				i := at + s.rng.IntN(n-at)
				gone := s.pods[service][i]
				s.pods[service] = slices.Delete(s.pods[service], i, i+1)
				s.slice(service)
				s.house.api.remove(pathPods, "shop", fmt.Sprint(service, "-", gone))
			}
		}
	}
}
