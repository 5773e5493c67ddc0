package rule

import "strings"

type authorizationPolicySpec struct {
	TargetRef                  *reference   `json:"targetRef"`
	RequiredAuthenticationRefs *[]reference `json:"requiredAuthenticationRefs"`
}

func authorizationPolicy(f *finder, h head, s authorizationPolicySpec) {
	target(f, h, s.TargetRef)
	if s.RequiredAuthenticationRefs == nil {
		f.bad("spec.requiredAuthenticationRefs", "is missing", "what is asked of clients must be said", "add the authentications; an empty list lets everybody in")
		return
	}
	var identities, networks int
	const field = "spec.requiredAuthenticationRefs"
	for i, r := range *s.RequiredAuthenticationRefs {
		here := at(field, i)
		switch {
		case r.is(policyGroup, "MeshTLSAuthentication"), r.is("", "ServiceAccount"):
			identities++
		case r.is(policyGroup, "NetworkAuthentication"):
			networks++
		default:
			f.bad(here+".kind", "is "+quote(r.String()), "it must be MeshTLSAuthentication or NetworkAuthentication of group "+policyGroup+", or ServiceAccount", "refer to one of these; group and kind must fit")
			continue
		}
		f.need(here+".name", r.Name, "the object's name")
	}
	if identities > 1 {
		f.bad(field, "names more than one MeshTLSAuthentication or ServiceAccount", "all must hold at once, and a client has one identity", "name all identities in one MeshTLSAuthentication, or write several policies")
	}
	if networks > 1 {
		f.bad(field, "names more than one NetworkAuthentication", "all must hold at once, and a client is at one address", "name all networks in one NetworkAuthentication, or write several policies")
	}
}

func target(f *finder, h head, t *reference) {
	const field = "spec.targetRef"
	switch {
	case t == nil:
		f.bad(field, "is missing", "a policy is about something", "name a Server, a route or the policy's own namespace")
		return
	case t.is("", "Namespace"):
		if t.Name != h.namespace {
			f.bad(field+".name", "is "+quote(t.Name), "a policy holds in its own namespace only, which is "+h.namespace, "set it to "+h.namespace+", or create the policy in the other namespace")
		}
		return
	case t.is(policyGroup, "Server"), t.is(policyGroup, "HTTPRoute"), t.is(gatewayGroup, "HTTPRoute"), t.is(gatewayGroup, "GRPCRoute"):
	default:
		f.bad(field+".kind", "is "+quote(t.String()), "a policy is about a Server, a Namespace, an HTTPRoute or a GRPCRoute", "refer to one of these; group and kind must fit")
		return
	}
	f.need(field+".name", t.Name, "the target's name")
}

type serverAuthorizationSpec struct {
	Server *struct {
		Name     *string   `json:"name"`
		Selector *selector `json:"selector"`
	} `json:"server"`
	Client *struct {
		Networks        []network `json:"networks"`
		Unauthenticated bool      `json:"unauthenticated"`
		MeshTLS         *struct {
			UnauthenticatedTLS bool     `json:"unauthenticatedTLS"`
			Identities         []string `json:"identities"`
			ServiceAccounts    []struct {
				Name string `json:"name"`
			} `json:"serviceAccounts"`
		} `json:"meshTLS"`
	} `json:"client"`
}

func serverAuthorization(f *finder, _ head, s serverAuthorizationSpec) {
	switch {
	case s.Server == nil || s.Server.Name == nil && s.Server.Selector == nil:
		f.bad("spec.server", "names no Server", "an authorization is about Servers", "add server.name or server.selector")
	case s.Server.Name != nil && s.Server.Selector != nil:
		f.bad("spec.server", "has both name and selector", "either one or the other says which Servers are meant", "keep one of them")
	default:
		s.Server.Selector.check(f, "spec.server.selector")
	}
	if s.Client == nil {
		f.bad("spec.client", "is missing", "who may connect must be said", "add client, such as {meshTLS: {identities: [\"*\"]}}")
		return
	}
	networks(f, "spec.client.networks", s.Client.Networks)
	tls := s.Client.MeshTLS
	if tls == nil {
		return
	}
	if s.Client.Unauthenticated {
		f.bad("spec.client.unauthenticated", "is true beside meshTLS", "clients either need an identity or they do not", "remove one of them")
	}
	if tls.UnauthenticatedTLS && len(tls.Identities)+len(tls.ServiceAccounts) > 0 {
		f.bad("spec.client.meshTLS.unauthenticatedTLS", "is true beside identities or serviceAccounts", "a client without an identity cannot be one of them", "remove one of them")
	}
	for i, a := range tls.ServiceAccounts {
		f.need(at("spec.client.meshTLS.serviceAccounts", i)+".name", a.Name, "the account's name")
	}
}

type meshTLSAuthenticationSpec struct {
	Identities   *[]string    `json:"identities"`
	IdentityRefs *[]reference `json:"identityRefs"`
}

func meshTLSAuthentication(f *finder, _ head, s meshTLSAuthenticationSpec) {
	switch {
	case s.Identities != nil && s.IdentityRefs != nil:
		f.bad("spec.identityRefs", "is there beside identities", "either one or the other says who is meant", "keep one of them, or write a second authentication")
	case s.Identities == nil && s.IdentityRefs == nil:
		f.bad("spec.identities", "is missing", "an authentication without identities lets nobody in", "add identities or identityRefs")
	case s.Identities != nil && len(*s.Identities) == 0:
		f.bad("spec.identities", "is empty", "an authentication without identities lets nobody in", `add an identity; "*" is any`)
	case s.IdentityRefs != nil && len(*s.IdentityRefs) == 0:
		f.bad("spec.identityRefs", "is empty", "an authentication without identities lets nobody in", "add a ServiceAccount or a Namespace")
	}
	if s.Identities != nil {
		for i, id := range *s.Identities {
			if !isIdentity(id) {
				f.bad(at("spec.identities", i), "is "+quote(id), "it is neither a name of lower-case labels (the first may be *) nor a SPIFFE id",
					"write it like web.shop.serviceaccount.identity.linkerd.cluster.local, *.shop.serviceaccount.identity.linkerd.cluster.local or spiffe://domain/path")
			}
		}
	}
	if s.IdentityRefs == nil {
		return
	}
	for i, r := range *s.IdentityRefs {
		here := at("spec.identityRefs", i)
		switch {
		case r.is("", "ServiceAccount"):
		case r.is("", "Namespace"):
			if r.Namespace != "" {
				f.bad(here+".namespace", "is "+quote(r.Namespace), "a Namespace is in no namespace", "remove the field; name says which namespace is meant")
			}
		default:
			f.bad(here+".kind", "is "+quote(r.String()), "identities belong to a ServiceAccount, or to a Namespace for all of its accounts", "refer to one of these, without a group")
		}
	}
}

// isIdentity says whether text is a name that a proxy can prove, or a pattern of
// such names. Source: spec/identity-injector-mirror.md §6.
func isIdentity(text string) bool {
	if rest, ok := strings.CutPrefix(text, "spiffe://"); ok {
		return isSPIFFE(rest)
	}
	for i, label := range strings.Split(text, ".") {
		if !isLabel(label) && (i > 0 || label != "*") {
			return false
		}
	}
	return true
}

func isLabel(s string) bool {
	return s != "" && only(s, "-") && s == strings.ToLower(s) && s[0] != '-' && s[len(s)-1] != '-'
}

// isSPIFFE judges what follows the scheme.
func isSPIFFE(rest string) bool {
	domain, path, hasPath := strings.Cut(rest, "/")
	if domain == "" || !only(domain, "-._") || domain != strings.ToLower(domain) {
		return false
	}
	if !hasPath {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." || !only(segment, "-._") {
			return false
		}
	}
	return true
}

// only says whether s has nothing but ASCII letters, digits and some more.
func only(s, more string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(more, c) < 0 {
			return false
		}
	}
	return true
}
