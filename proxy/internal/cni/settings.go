package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/say"
)

// Names that the injector gives.
const (
	proxyContainer = "linkerd-proxy"
	initContainer  = "linkerd-init"
	componentLabel = "linkerd.io/control-plane-component"
	prefix         = "config.linkerd.io/"
)

// skipped says why a pod needs no redirection from us; empty means that it does.
func skipped(pod *apiserver.Pod) string {
	switch {
	case pod.Container(proxyContainer) == nil:
		return "the pod has no proxy"
	case pod.Container(initContainer) != nil:
		return "the pod's init container does it"
	}
	return ""
}

// layers are where a setting may come from, the strongest first.
type layers []map[string]string

func (l layers) get(key string) (string, bool) {
	for _, annotations := range l {
		if v := strings.TrimSpace(annotations[prefix+key]); v != "" {
			return v, true
		}
	}
	return "", false
}

// options are the settings for one pod: the plugin's own, overridden by
// annotations of the pod, then of its namespace. apiPorts are those of the API
// server, which the control plane reaches without its proxy; nil for other pods.
// bad names every annotation that cannot be read; it counts for nothing.
func (s *Settings) options(pod *apiserver.Pod, namespace map[string]string, apiPorts []string) (o redirect.Options, bad []string) {
	o = redirect.Options{
		Inbound: int(s.Inbound), Outbound: int(s.Outbound), UID: int64(s.UID), GID: int64(s.GID),
		Redirect: s.Redirect, SkipInbound: s.SkipInbound, SkipOutbound: s.SkipOutbound, SkipSubnets: s.SkipSubnets, IPv6: s.IPv6,
	}
	if user := pod.Spec.SecurityContext; user != nil && user.RunAsUser != nil {
		o.UID = *user.RunAsUser
	}

	from := layers{pod.Metadata.Annotations, namespace}
	whole := func(key string, otherwise int64) int64 {
		text, ok := from.get(key)
		if !ok {
			return otherwise
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			bad = append(bad, fmt.Sprintf("the annotation %s%s is %q, and it is a whole number", prefix, key, clip(text)))
			return otherwise
		}
		return n
	}
	o.Inbound = int(whole("inbound-port", int64(o.Inbound)))
	o.Outbound = int(whole("outbound-port", int64(o.Outbound)))
	o.UID = whole("proxy-uid", o.UID)
	// Whom the proxy really runs as beats what anybody says.
	if c := pod.Container(proxyContainer); c != nil && c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		o.UID = *c.SecurityContext.RunAsUser
	}
	o.GID = whole("proxy-gid", o.GID)
	list := func(into *[]string, key string) {
		if text, ok := from.get(key); ok {
			*into = strings.Split(text, ",")
		}
	}
	list(&o.SkipInbound, "skip-inbound-ports")
	list(&o.SkipOutbound, "skip-outbound-ports")
	list(&o.SkipSubnets, "skip-subnets")
	// The proxy's own servers stay reachable whatever the list says, as they do
	// with an init container.
	for _, own := range []struct {
		key  string
		port int64
	}{{"control-port", 4190}, {"admin-port", 4191}} {
		o.SkipInbound = append(slices.Clip(o.SkipInbound), strconv.FormatInt(whole(own.key, own.port), 10))
	}
	o.SkipOutbound = append(slices.Clip(o.SkipOutbound), apiPorts...)
	return o, bad
}

// mistakes is the error for annotations that cannot be read and for a plan that
// was refused, all of it at once: who corrects one thing at a time waits for a
// pod each time.
func mistakes(bad []string, refused error) error {
	if len(bad) == 0 {
		return refused
	}
	if p, ok := errors.AsType[*say.Problem](refused); ok {
		bad = append(bad, p.Why)
	}
	return fail(codeConfig, "the pod's annotations make no sense", strings.Join(bad, "\n"), "correct them and create the pod again")
}

// controlPlane reports whether the pod must reach the API server by itself.
func controlPlane(pod *apiserver.Pod) bool { return pod.Metadata.Labels[componentLabel] != "" }

// apiPorts are the ports of the service "kubernetes": its own and, where they
// are numbers, those behind it.
func apiPorts(s *apiserver.Service) []string {
	var ports []string
	for _, p := range s.Spec.Ports {
		ports = append(ports, strconv.Itoa(p.Port))
		var target int
		if json.Unmarshal(p.TargetPort, &target) == nil && target > 0 {
			ports = append(ports, strconv.Itoa(target))
		}
	}
	return ports
}

// usualAPIPorts serve where the service can't be read.
var usualAPIPorts = []string{"443", "6443"}
