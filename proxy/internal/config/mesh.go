package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

func (r *reader) destination() Destination {
	return Destination{
		Svc:            r.svc("DESTINATION_SVC"),
		Context:        get(r, "DESTINATION_CONTEXT", "", text),
		Suffixes:       get(r, "DESTINATION_PROFILE_SUFFIXES", Suffixes{"svc.cluster.local"}, ParseSuffixes),
		Networks:       get(r, "DESTINATION_PROFILE_NETWORKS", nil, ParseNetworks),
		ProfileTimeout: get(r, "DESTINATION_PROFILE_INITIAL_TIMEOUT", 500*time.Millisecond, ParseDuration),
	}
}

func (r *reader) policy() Policy {
	p := Policy{
		Svc:             r.svc("POLICY_SVC"),
		Workload:        r.required("POLICY_WORKLOAD", nonEmpty),
		ClusterNetworks: get(r, "POLICY_CLUSTER_NETWORKS", nil, ParseNetworks),
		Default:         get(r, "INBOUND_DEFAULT_POLICY", "all-unauthenticated", parseDefault),
		Ports:           get(r, "INBOUND_PORTS", nil, ParsePorts),
		OpaquePorts:     get(r, "INBOUND_PORTS_DISABLE_PROTOCOL_DETECTION", nil, ParsePorts),
		Gateway:         get(r, "INBOUND_GATEWAY_SUFFIXES", nil, ParseSuffixes),
		IPs:             get(r, "INBOUND_IPS", nil, ParseIPs),
	}
	if !r.has("INBOUND_DEFAULT_POLICY") {
		r.warn("INBOUND_DEFAULT_POLICY", "not set, so that whoever connects is let in where there is no other policy (all-unauthenticated)")
	}
	// audit is documented to need the networks as well, though it allows everyone.
	needs := strings.HasPrefix(p.Default, "cluster-") || p.Default == "audit"
	if needs && len(p.ClusterNetworks) == 0 {
		r.fail("POLICY_CLUSTER_NETWORKS", "must be set for the default policy %s", p.Default)
	}
	return p
}

func parseDefault(s string) (string, error) {
	if !slices.Contains(Defaults, s) {
		return "", fmt.Errorf("want one of %s, got %q", strings.Join(Defaults, ", "), s)
	}
	return s, nil
}

func (r *reader) required(name string, parse func(string) (string, error)) string {
	if !r.has(name) {
		r.fail(name, "must be set")
		return ""
	}
	return get(r, name, "", parse)
}

// svc reads ADDR and NAME. A loopback address needs no name, and if one is given
// it means nothing, though it must be one: such connections are plaintext.
func (r *reader) svc(p string) Svc {
	s := Svc{Addr: r.required(p+"_ADDR", parseHostPorts)}
	name := get(r, p+"_NAME", "", parseIdentity)
	switch {
	case s.Addr == "" || s.Loopback():
		return s
	case !r.has(p + "_NAME"):
		r.fail(p+"_NAME", "must be set")
	}
	s.Name = name
	return s
}

func (r *reader) streams() Streams {
	optional := func(s string) (time.Duration, error) {
		if s == "" {
			return 0, nil
		}
		return ParseDuration(s)
	}
	s := Streams{
		Initial:  get(r, "CONTROL_STREAM_INITIAL_TIMEOUT", 0, optional),
		Idle:     get(r, "CONTROL_STREAM_IDLE_TIMEOUT", 0, optional),
		Lifetime: get(r, "CONTROL_STREAM_LIFETIME", 0, optional),
	}
	last := time.Duration(0)
	for _, d := range []time.Duration{s.Initial, s.Idle, s.Lifetime} {
		if d == 0 {
			continue
		}
		if d < last {
			r.fail("CONTROL_STREAM", "want INITIAL_TIMEOUT <= IDLE_TIMEOUT <= LIFETIME")
		}
		last = d
	}
	return s
}
