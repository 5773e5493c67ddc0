package derive

import (
	"cmp"
	"strconv"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// annotationSkip lists ports whose traffic does not pass the pod's proxy.
const annotationSkip = "config.linkerd.io/skip-inbound-ports"

// peer is who answers at an endpoint.
type peer struct {
	identity string // empty for one without a proxy
	inbound  uint32 // its proxy's inbound port; 0 when it is not known
	skip     string // ports that its proxy does not see
}

// peerOf says who is behind an endpoint. It is false while that cannot be told,
// or where a client could not check it: without a name to check, a client would
// send plain text to a workload that has a proxy.
func peerOf(e *busv1.Endpoint, t Tables, link Link) (peer, bool) {
	if e.GetWorkload() == "" {
		return peer{identity: e.GetGatewayIdentity(), inbound: e.GetInboundPort()}, true
	}
	w := t.Workloads[e.GetWorkload()]
	if w == nil || w.GetKind() != busv1.Workload_KIND_POD {
		return peer{}, false // not known yet, or known by a URI
	}
	tmpl := t.Templates[w.GetTemplate()]
	if tmpl == nil {
		return peer{}, false
	}
	if tmpl.GetControlPlaneNamespace() == "" {
		return peer{}, true
	}
	account := cmp.Or(tmpl.GetServiceAccount(), "default")
	return peer{
		identity: account + "." + w.GetNamespace() + ".serviceaccount.identity." +
			tmpl.GetControlPlaneNamespace() + "." + link.TrustDomain,
		inbound: tmpl.GetProxy().GetInboundPort(),
		skip:    tmpl.GetAnnotations()[annotationSkip],
	}, true
}

// skips says whether a port is among those that the proxy does not see:
// numbers and ranges; anything else in the list means nothing.
func (p peer) skips(port uint32) bool {
	for item := range strings.SplitSeq(p.skip, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(item), "-")
		if !isRange {
			to = from
		}
		low, errLow := strconv.ParseUint(from, 10, 16)
		high, errHigh := strconv.ParseUint(to, 10, 16)
		if errLow == nil && errHigh == nil && uint64(port) >= low && uint64(port) <= high {
			return true
		}
	}
	return false
}
