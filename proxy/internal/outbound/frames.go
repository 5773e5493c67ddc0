package outbound

import (
	"net/netip"
	"strings"

	"github.com/weftmesh/weft/proxy/internal/message"
	"github.com/weftmesh/weft/proxy/internal/tell"
)

// sized is the request's body as the layers below read it: the sizes of its
// pieces are counted.
type sized struct {
	message.Body
	sizes *tell.Histogram
}

// Next is message.Body's.
func (f *sized) Next() ([]byte, error) {
	p, err := f.Body.Next()
	if err == nil {
		f.sizes.Observe(float64(len(p)))
	}
	return p, err
}

// Body is message.Client's.
func (x *exchange) Body() message.Body {
	b := x.Client.Body()
	if b == nil || x.rule == nil {
		return b
	}
	x.frames = sized{b, x.told().frames}
	return &x.frames
}

// Write is message.Client's.
func (x *exchange) Write(p []byte) error {
	if x.from != nil {
		x.from.frames.Observe(float64(len(p)))
	}
	return x.Client.Write(p)
}

// told is what counts the request: by its host too, where the environment calls
// for that.
func (x *exchange) told() *routeTell {
	if !x.o.deps.Config.HostnameLabels {
		return x.rule.tell
	}
	return x.rule.tell.host(hostOnly(x.authority))
}

// host is the part of a route's requests that are for a host. Hosts are made up by
// clients: those after the first many are counted together.
func (t *routeTell) host(name string) *routeTell {
	if h, ok := t.hosts.Get(name); ok {
		return h
	}
	if t.known.Add(1) > maxHosts {
		return t
	}
	name = strings.Clone(name) // heads are borrowed
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return t.hosts.Put(name, t) // an address is no name
	}
	return t.hosts.Put(name, newRouteTell(t.m, t.of, name, t.grpc))
}

// maxHosts bounds the hosts that a route counts apart.
const maxHosts = 100
