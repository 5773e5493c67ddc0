package resolve

import (
	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
)

// A Profile is what the destination service knows of a target.
type Profile struct {
	Name      string // of the service; "" if the target is none
	Parent    Ref
	Opaque    bool      // bytes, whatever the policy says
	Endpoint  *Endpoint // the target is this one address
	Overrides []Backend // shares of the service's traffic
}

func profileOf(p *destpb.DestinationProfile) *Profile {
	out := &Profile{Name: p.GetFullyQualifiedName(), Opaque: p.GetOpaqueProtocol()}
	if ref, err := refOf(p.GetParentRef()); err == nil {
		out.Parent = ref
	}
	if p.GetEndpoint() != nil {
		if e, ok := endpointOf(p.GetEndpoint(), nil); ok {
			out.Endpoint = &e
		}
	}
	for _, d := range p.GetDstOverrides() {
		if d.GetWeight() == 0 || d.GetAuthority() == "" {
			continue
		}
		ref, err := refOf(d.GetBackendRef())
		if err != nil {
			ref = fallback(d.GetAuthority())
		}
		out.Overrides = append(out.Overrides, Backend{Ref: ref, Weight: d.GetWeight(), Path: d.GetAuthority(), Load: DefaultLoad})
	}
	return out
}
