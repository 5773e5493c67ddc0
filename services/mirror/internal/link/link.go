// Package link reads Linkerd's Link resource and writes its status. It is pure.
//
// Of a Link, what says how the other cluster's services are taken over is used.
// Its credentials are not: the other cluster's bus is read, not its API server.
package link

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/mirror/internal/derive"
)

// Link is what is used of a Link resource.
type Link struct {
	Cluster, Domain string
	// Gateway is where the other cluster is entered: no addresses, no gateway.
	Gateway Gateway
	Rules   derive.Rules
	// Status is what the resource has now.
	Status Status
}

// Gateway is a Link's gateway; addresses are IP addresses or host names.
type Gateway struct {
	Addresses []string
	Port      uint16
	Identity  string
	Probe     Probe
}

// Probe is how the gateway is asked whether it lives; an empty path means never.
type Probe struct {
	Path            string
	Port            uint16
	Period, Timeout time.Duration
	Threshold       int
}

type resource struct {
	Kind string `json:"kind"`
	Spec struct {
		Cluster         string `json:"targetClusterName"`
		Domain          string `json:"targetClusterDomain"`
		GatewayAddress  string `json:"gatewayAddress"`
		GatewayPort     string `json:"gatewayPort"`
		GatewayIdentity string `json:"gatewayIdentity"`
		Probe           *struct {
			Path      string `json:"path"`
			Port      string `json:"port"`
			Period    string `json:"period"`
			Timeout   string `json:"timeout"`
			Threshold string `json:"failureThreshold"`
		} `json:"probeSpec"`
		Selector            *metav1.LabelSelector `json:"selector"`
		RemoteDiscovery     *metav1.LabelSelector `json:"remoteDiscoverySelector"`
		Federated           *metav1.LabelSelector `json:"federatedServiceSelector"`
		ExcludedAnnotations []string              `json:"excludedAnnotations"`
		ExcludedLabels      []string              `json:"excludedLabels"`
	} `json:"spec"`
	Status Status `json:"status"`
}

// Parse reads a Link resource, YAML or JSON. All that is wrong is told at once.
func Parse(b []byte) (*Link, error) {
	var r resource
	if err := yaml.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("reading the Link: %w", err)
	}
	if r.Kind != "Link" {
		return nil, fmt.Errorf("reading the Link: it is of kind %q", r.Kind)
	}
	var errs []error
	wrong := func(field, form string, args ...any) {
		errs = append(errs, fmt.Errorf("the Link's spec."+field+": "+form, args...))
	}
	s := r.Spec
	out := &Link{Cluster: s.Cluster, Domain: s.Domain, Status: r.Status}
	if problems := validation.IsDNS1123Label(s.Cluster); len(problems) > 0 {
		wrong("targetClusterName", "%.80q is not a DNS label", s.Cluster)
	}
	if problems := validation.IsDNS1123Subdomain(s.Domain); len(problems) > 0 {
		wrong("targetClusterDomain", "%.80q is not a DNS name", s.Domain)
	}
	out.Rules.ExcludedAnnotations, out.Rules.ExcludedLabels = s.ExcludedAnnotations, s.ExcludedLabels
	for _, of := range []struct {
		field string
		from  *metav1.LabelSelector
		to    *labels.Selector
	}{
		{"selector", s.Selector, &out.Rules.Exported},
		{"remoteDiscoverySelector", s.RemoteDiscovery, &out.Rules.RemoteDiscovery},
		{"federatedServiceSelector", s.Federated, &out.Rules.Federated},
	} {
		var err error
		if *of.to, err = selector(of.from); err != nil {
			wrong(of.field, "%w", err)
		}
	}
	for item := range strings.SplitSeq(s.GatewayAddress, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out.Gateway.Addresses = append(out.Gateway.Addresses, item)
		}
	}
	if len(out.Gateway.Addresses) > 0 {
		port, err := strconv.ParseUint(s.GatewayPort, 10, 16)
		if err != nil || port == 0 {
			wrong("gatewayPort", "%.20q is not a port", s.GatewayPort)
		}
		if s.GatewayIdentity == "" {
			wrong("gatewayIdentity", "it is empty: a client must know whom it talks to")
		}
		out.Gateway.Port, out.Gateway.Identity = uint16(port), s.GatewayIdentity
		if p := s.Probe; p != nil && p.Path != "" {
			if out.Gateway.Probe, err = asked(p.Path, p.Port, p.Period, p.Timeout, p.Threshold); err != nil {
				wrong("probeSpec", "%w", err)
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// asked reads a probe, whose fields are all text in a Link. What is left out is
// as Linkerd has it.
func asked(path, port, period, timeout, threshold string) (Probe, error) {
	out := Probe{Path: path, Period: 3 * time.Second, Timeout: 30 * time.Second, Threshold: 3}
	if !strings.HasPrefix(path, "/") {
		return out, fmt.Errorf("path %.80q does not begin with a slash", path)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return out, fmt.Errorf("port %.20q is not a port", port)
	}
	out.Port = uint16(n)
	for text, to := range map[string]*time.Duration{period: &out.Period, timeout: &out.Timeout} {
		if text == "" {
			continue
		}
		if _, err := strconv.Atoi(text); err == nil {
			text += "s" // the gateway's annotation has seconds
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return out, fmt.Errorf("%.20q is not a time", text)
		}
		*to = d
	}
	if threshold != "" {
		if out.Threshold, err = strconv.Atoi(threshold); err != nil || out.Threshold < 1 {
			return out, fmt.Errorf("failureThreshold %.20q is not a number from 1 on", threshold)
		}
	}
	return out, nil
}

// selector is a Link's selector: one that is absent or empty selects nothing,
// where Kubernetes' selects all.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return labels.Nothing(), nil
	}
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, err
	}
	return out, Known(out)
}

// Known says whether the other cluster's bus has the labels that a selector
// looks at.
func Known(s labels.Selector) error {
	wanted, _ := s.Requirements()
	i := slices.IndexFunc(wanted, func(r labels.Requirement) bool {
		return !strings.HasPrefix(r.Key(), "mirror.linkerd.io/") && !strings.HasPrefix(r.Key(), "multicluster.linkerd.io/")
	})
	if i < 0 {
		return nil
	}
	return fmt.Errorf("label %q is not on the other cluster's bus: those of mirror.linkerd.io and multicluster.linkerd.io are", wanted[i].Key())
}
