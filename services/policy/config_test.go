package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/weftmesh/weft/services/kit/conf"
)

func TestDefaultsAreLinkerds(t *testing.T) {
	cfg, err := conf.LoadFrom(defaults(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cfg.cluster()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Listen != ":8090" || cfg.Obs.Admin != "127.0.0.1:9990" || len(c.Networks) != 4 || len(c.ProbeNetworks) != 2 ||
		c.OpaquePorts.String() != "25,587,3306,4444,5432,6379,9300,11211" || c.DefaultPolicy != "all-unauthenticated" ||
		c.ServiceAccountIdentity("grove", "amy") != "amy.grove.serviceaccount.identity.linkerd.cluster.local" {
		t.Errorf("defaults %+v give %+v", cfg, c)
	}
}

// TestFlagsAreLinkerds sets every one of them by its name there.
func TestFlagsAreLinkerds(t *testing.T) {
	cfg, err := conf.LoadFrom(defaults(), []string{
		"-listen", "127.0.0.1:0",
		"-cluster-networks", "10.0.0.0/8,fd00::/8",
		"-identity-domain", "mesh.example",
		"-cluster-domain", "cluster.example.",
		"-default-policy", "deny",
		"-control-plane-namespace", "weft",
		"-probe-networks", "",
		"-default-opaque-ports", "25",
		"-allow-l5d-request-headers",
		"-global-egress-network-namespace", "egress",
		"-server-addr", "0.0.0.0:9443",
		"-server-tls-certs", "/a",
		"-server-tls-key", "/b",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cfg.cluster()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Networks) != 2 || len(c.ProbeNetworks) != 0 || c.Domain != "cluster.example" || !c.AllowHeaders ||
		c.DefaultPolicy != "deny" || c.OpaquePorts.String() != "25" || cfg.GlobalEgressNetworkNamespace != "egress" ||
		c.NamespaceIdentities("a") != "a.serviceaccount.identity.weft.mesh.example" ||
		cfg.ServerAddr != "0.0.0.0:9443" || cfg.ServerTLSCerts != "/a" || cfg.ServerTLSKey != "/b" {
		t.Errorf("%+v", c)
	}
}

// TestNonsenseNamesItsFlag reports every mistake at once, for exit code 64.
func TestNonsenseNamesItsFlag(t *testing.T) {
	args := []string{
		"-listen", "",
		"-cluster-networks", "ten",
		"-identity-domain", "a..b",
		"-cluster-domain", "-",
		"-default-policy", "open",
		"-control-plane-namespace", "Lin kerd",
		"-probe-networks", "10.0.0.0/99",
		"-default-opaque-ports", "25,x",
		"-global-egress-network-namespace", "",
		"-serve.send-timeout", "-1s",
		"-webhook-linger", "-1s",
	}
	_, err := conf.LoadFrom(defaults(), args, nil)
	var wrong *conf.Error
	if !errors.As(err, &wrong) {
		t.Fatalf("LoadFrom: %v, want a *conf.Error", err)
	}
	for i := 0; i < len(args); i += 2 {
		if !strings.Contains(err.Error(), args[i]) {
			t.Errorf("%s is not named in:\n%v", args[i], err)
		}
	}
	if len(wrong.Problems) != len(args)/2 {
		t.Errorf("%d problems, want %d:\n%v", len(wrong.Problems), len(args)/2, err)
	}
	if _, err := conf.LoadFrom(defaults(), []string{"-cluster-networks", ""}, nil); err == nil {
		t.Error("a cluster without networks is nonsense")
	}
}
