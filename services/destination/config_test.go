package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/services/kit/conf"
)

func TestConfig(t *testing.T) {
	cfg, err := conf.LoadFrom(defaults(), []string{
		"-listen", "127.0.0.1:1", "-controller-namespace=mesh", "-cluster-domain=orchard.example",
		"-outbound-transport-mode=transport-header", "-enable-h2-upgrade=false", "-enable-ipv6=false", "-enable-endpoint-slices=true",
		"-ext-endpoint-zone-weights=true", "-default-opaque-ports=25,8000-8010",
		`-meshed-http2-client-params={"keep_alive":{"timeout":{"seconds":10},"interval":{"seconds":20},"while_idle":true}}`,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cfg.derive()
	if err != nil {
		t.Fatal(err)
	}
	if d.ControlPlane != "mesh" || d.ClusterDomain != "orchard.example" || d.TrustDomain != "orchard.example" ||
		!d.ForceOpaqueTransport || d.UpgradeHTTP2 || d.IPv6 || !d.ZoneWeights || d.Opaque.String() != "25,8000-8010" {
		t.Errorf("derive() = %+v", d)
	}
	if k := d.HTTP2.GetKeepAlive(); k.GetTimeout().AsDuration() != 10*time.Second || k.GetInterval().AsDuration() != 20*time.Second || !k.GetWhileIdle() {
		t.Errorf("HTTP/2 parameters: %v", d.HTTP2)
	}
}

func TestConfigDefaultsAreLinkerds(t *testing.T) {
	cfg, err := conf.LoadFrom(defaults(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := cfg.derive()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != ":8086" || d.ControlPlane != "linkerd" || d.TrustDomain != "cluster.local" || d.ForceOpaqueTransport ||
		!d.UpgradeHTTP2 || !d.IPv6 || d.ZoneWeights || d.HTTP2 != nil || d.Opaque.String() != "25,587,3306,4444,5432,6379,9300,11211" {
		t.Errorf("defaults: %+v %+v", cfg, d)
	}
}

// TestConfigRefusesNonsense: each mistake is named by its flag, which run.Main
// turns into exit code 64.
func TestConfigRefusesNonsense(t *testing.T) {
	for _, arg := range []string{
		"-outbound-transport-mode=sideways", "-default-opaque-ports=99999", "-enable-endpoint-slices=false",
		"-meshed-http2-client-params=nonsense", `-meshed-http2-client-params={"keepalive":{}}`, "-meshed-http2-client-params={}{}",
		"-cluster-domain=", "-controller-namespace=", "-addr=:1",
	} {
		_, err := conf.LoadFrom(defaults(), []string{arg}, nil)
		if _, ok := errors.AsType[*conf.Error](err); !ok {
			t.Errorf("%s: %v, want a *conf.Error", arg, err)
			continue
		}
		if name, _, _ := strings.Cut(arg, "="); !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named in %q", arg, err)
		}
	}
}
