package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/destination/internal/derive"
	"github.com/weftmesh/weft/services/destination/internal/link"
	"github.com/weftmesh/weft/services/destination/internal/ports"
	"github.com/weftmesh/weft/services/destination/internal/serve"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
)

// config is every setting; flags have Linkerd's names where it has them.
type config struct {
	Listen                  conf.Addr `help:"address of the gRPC API"`
	ControllerNamespace     string    `help:"namespace of this control plane"`
	ClusterDomain           string    `help:"domain of the names of Services"`
	IdentityTrustDomain     string    `help:"trust domain of identities; empty means the cluster domain"`
	OutboundTransportMode   string    `help:"transparent, or transport-header to send all meshed connections to the proxy's inbound port"`
	EnableH2Upgrade         bool      `help:"let proxies carry HTTP/1 to each other in HTTP/2"`
	EnableIpv6              bool      `help:"prefer a pod's IPv6 address; false leaves IPv6 addresses out"`
	EnableEndpointSlices    bool      `help:"accepted for compatibility; discovery always reads EndpointSlices"`
	ExtEndpointZoneWeights  bool      `help:"give endpoints in the client's zone ten times the weight"`
	DefaultOpaquePorts      string    `help:"ports and ranges that are opaque where no annotation says otherwise"`
	MeshedHttp2ClientParams string    `help:"JSON of the HTTP/2 parameters that clients of meshed endpoints use; empty for their defaults"` //nolint:staticcheck // the name makes the flag, and the flag is Linkerd\'s

	Bus   bus.Config   `help:"where the mesh's log is"`
	Links link.Config  `help:"other clusters' logs"`
	Serve serve.Config `help:"limits on the API"`
	Obs   obs.Config   `help:"logs, metrics and traces"`
}

// The values of -outbound-transport-mode.
const (
	modeTransparent = "transparent"
	modeHeader      = "transport-header"
)

// defaults are Linkerd's, with the list of opaque ports that its chart installs.
func defaults() config {
	return config{
		Listen:                ":8086",
		ControllerNamespace:   "linkerd",
		ClusterDomain:         "cluster.local",
		OutboundTransportMode: modeTransparent,
		EnableH2Upgrade:       true,
		EnableIpv6:            true,
		EnableEndpointSlices:  true,
		DefaultOpaquePorts:    "25,587,3306,4444,5432,6379,9300,11211",
		Obs:                   obs.Config{Admin: "127.0.0.1:9996"},
	}
}

// Check judges the settings.
func (c config) Check() error {
	if c.ControllerNamespace == "" {
		return conf.Bad("ControllerNamespace", "is empty")
	}
	if c.ClusterDomain == "" {
		return conf.Bad("ClusterDomain", "is empty")
	}
	if m := c.OutboundTransportMode; m != modeTransparent && m != modeHeader {
		return conf.Bad("OutboundTransportMode", "%q is neither %s nor %s", m, modeTransparent, modeHeader)
	}
	if !c.EnableEndpointSlices {
		return conf.Bad("EnableEndpointSlices", "false is not possible: Endpoints objects are not read")
	}
	if _, err := ports.Parse(c.DefaultOpaquePorts); err != nil {
		return conf.Bad("DefaultOpaquePorts", "%v", err)
	}
	if _, err := c.http2(); err != nil {
		return conf.Bad("MeshedHttp2ClientParams", "%v", err)
	}
	return nil
}

// http2 reads the parameters as Linkerd does: the API's message, in the JSON of
// its Go fields ({"keep_alive":{"timeout":{"seconds":3}}}).
func (c config) http2() (*pb.Http2ClientParams, error) {
	if c.MeshedHttp2ClientParams == "" {
		return nil, nil
	}
	params := &pb.Http2ClientParams{}
	d := json.NewDecoder(bytes.NewReader([]byte(c.MeshedHttp2ClientParams)))
	d.DisallowUnknownFields()
	if err := d.Decode(params); err != nil {
		return nil, fmt.Errorf("reading the HTTP/2 parameters: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("reading the HTTP/2 parameters: more than one value")
	}
	return params, nil
}

// derive is what the settings mean for answers. Check has passed.
func (c config) derive() (derive.Config, error) {
	opaque, err := ports.Parse(c.DefaultOpaquePorts)
	if err != nil {
		return derive.Config{}, err
	}
	params, err := c.http2()
	if err != nil {
		return derive.Config{}, err
	}
	trust := c.IdentityTrustDomain
	if trust == "" {
		trust = c.ClusterDomain
	}
	return derive.Config{
		ControlPlane:         c.ControllerNamespace,
		ClusterDomain:        c.ClusterDomain,
		TrustDomain:          trust,
		ForceOpaqueTransport: c.OutboundTransportMode == modeHeader,
		UpgradeHTTP2:         c.EnableH2Upgrade,
		IPv6:                 c.EnableIpv6,
		ZoneWeights:          c.ExtEndpointZoneWeights,
		Opaque:               opaque,
		HTTP2:                params,
	}, nil
}
