package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/dir"
	"github.com/weftmesh/weft/services/mirror/internal/feed"
	"github.com/weftmesh/weft/services/mirror/internal/probe"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

func TestCheck(t *testing.T) {
	link := []string{"-cluster-name", "east"}
	tests := []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"-sink", "dir", "-dir", "/x"}, ""},
		{[]string{"-gateway.address", "192.0.2.1,gw.example", "-gateway.identity", "gw"}, ""},
		{[]string{"-cluster-name", ""}, "cluster-name"},
		{[]string{"-cluster-name", "a.b"}, "cluster-name"},
		{[]string{"-local-mirror"}, "cluster-name"},
		{[]string{"-cluster-name", "", "-local-mirror"}, "local-mirror"},
		{[]string{"-cluster-name", "", "-local-mirror", "-bus.servers", "nats://x:4222"}, ""},
		{[]string{"-selector", "", "-federated-service-selector", "mirror.linkerd.io/federated in (member, yes)"}, ""},
		{[]string{"-cluster-name", "", "-link", "east"}, ""},
		{[]string{"-cluster-name", "", "-link", "east", "-local-mirror"}, "link"},
		{[]string{"-selector", "app=kiln"}, "is not on the other cluster's bus"},
		{[]string{"-remote-discovery-selector", "=="}, "remote-discovery-selector"},
		{[]string{"-sink", "file"}, "sink"},
		{[]string{"-sink", "dir"}, "dir"},
		{[]string{"-gateway.address", "192.0.2.1"}, "gateway.identity"},
		{[]string{"-gateway.identity", "gw"}, "gateway.identity"},
		{[]string{"-gateway.probe-path", "ready"}, "gateway.probe-path"},
		{[]string{"-gateway.probe-port", "0"}, "gateway.probe-port"},
		{[]string{"-gateway.port", "0"}, "gateway.port"},
		{[]string{"-gateway.port", "70000"}, "gateway.port"},
		{[]string{"-remote.cluster", "A.B"}, "cluster"},
	}
	for _, tt := range tests {
		_, err := conf.LoadFrom(defaults(), append(link, tt.args...), nil)
		if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: %v, want an error with %q", tt.args, err, tt.want)
		}
	}
}

func TestRemoteClusterIsTheNameUnlessGiven(t *testing.T) {
	c := config{ClusterName: "east"}
	if got := c.remote().Cluster; got != "east" {
		t.Errorf("cluster %q, want east", got)
	}
	c.Remote.Cluster = "local"
	if got := c.remote().Cluster; got != "local" {
		t.Errorf("cluster %q, want local", got)
	}
}

type deadGateway struct{}

func (deadGateway) Aim(probe.Target) {}
func (deadGateway) Alive() bool      { return false }

func TestResolver(t *testing.T) {
	r := resolver{
		gw: gateway{Address: []string{"192.0.2.9", "gw.example", "::ffff:192.0.2.9"}, Port: 4143, Identity: "gw"},
		lookup: func(_ context.Context, _, host string) ([]netip.Addr, error) {
			if host != "gw.example" {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")}, nil
		},
	}
	got, err := r.Link(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, a := range got.Gateway.Addresses {
		texts = append(texts, a.String())
	}
	if diff := cmp.Diff([]string{"192.0.2.1", "192.0.2.9", "2001:db8::1"}, texts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	r.gw.Address, r.ask = []string{"192.0.2.9"}, deadGateway{}
	if got, err := r.Link(t.Context()); err != nil || !got.Gateway.Dead {
		t.Errorf("Link() = %+v, %v, want a dead gateway", got, err)
	}
	r.gw.Address = []string{"gone.example"}
	if _, err := r.Link(t.Context()); err == nil {
		t.Error("Link() with an unknown host = nil")
	}
}

func TestOpenSink(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + ".gone"} {
		if _, err := openSink(config{Sink: "dir", Dir: path}); err == nil {
			t.Errorf("openSink(%s) = nil", path)
		}
	}
	if _, err := openSink(config{Sink: "dir", Dir: t.TempDir()}); err != nil {
		t.Error(err)
	}
}

func service(exported string) bus.Change {
	return bus.Change{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("pottery", "kiln"), Value: bus.Encode(&busv1.Service{
		Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Name: "http", Port: 80}},
		Labels: map[string]string{derive.LabelExported: exported},
	})}
}

// The whole way, from the other cluster's log to files here: copies appear,
// outlive the link, and go when the other cluster says so or on -unlink.
func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := bustest.Memory()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{}, 16)
		parts := 0
		run := func(f func(context.Context) error) {
			parts++
			go func() { _ = f(ctx); ended <- struct{}{} }()
		}
		defer func() {
			cancel()
			for range parts {
				<-ended
			}
		}()
		there, here := mem.Join("east"), mem.Join("east")
		standby := bus.NewReader(there, bus.ReaderConfig{})
		writer := bus.NewWriter(there, standby, bus.WriterConfig{})
		reader := bus.NewReader(here, bus.ReaderConfig{})
		copies := feed.New(reader, derive.Rules{})
		out := &dir.Sink{Path: t.TempDir(), Cluster: "east"}
		link := config{ClusterName: "east", RemoteDomain: "cluster.local", RemoteTrustDomain: "cluster.local"}.gateway(derive.Rules{}, nil)
		loop := reconcile.New(copies, link, out, reconcile.Config{}, prometheus.NewPedanticRegistry())
		for _, part := range []func(context.Context) error{there.Run, standby.Run, writer.Run, here.Run, reader.Run, copies.Run, loop.Run} {
			run(part)
		}
		files := func(when string, want ...string) {
			t.Helper()
			timer := time.NewTimer(2 * time.Minute)
			defer timer.Stop()
			<-timer.C
			synctest.Wait()
			entries, err := os.ReadDir(out.Path)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: files (-want +got):\n%s", when, diff)
			}
		}
		const kiln = "mirror.east.pottery.kiln-east.yaml"
		// A copy of a former process: it must not go before the other cluster is known.
		if err := os.WriteFile(filepath.Join(out.Path, "mirror.east.pottery.old-east.yaml"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		files("not synced", "mirror.east.pottery.old-east.yaml")
		if err := writer.Lead(ctx, []bus.Change{service("true")}); err != nil {
			t.Fatal(err)
		}
		files("synced", kiln)
		mem.Cut(here)
		if _, err := writer.Append(ctx, []bus.Change{service("false")}, time.Now()); err != nil {
			t.Fatal(err)
		}
		files("link down", kiln)
		mem.Heal(here)
		files("no longer exported")
		if _, err := writer.Append(ctx, []bus.Change{service("true")}, time.Now()); err != nil {
			t.Fatal(err)
		}
		files("exported again", kiln)
		if _, err := writer.Append(ctx, []bus.Change{{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("pottery", "kiln")}}, time.Now()); err != nil {
			t.Fatal(err)
		}
		files("deleted")
	})
}

func TestUnlink(t *testing.T) {
	out := &dir.Sink{Path: t.TempDir(), Cluster: "east"}
	for _, f := range []string{"mirror.east.pottery.kiln-east.yaml", "app.yaml"} {
		if err := os.WriteFile(filepath.Join(out.Path, f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unlink(t.Context(), out, "east"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(out.Path)
	if err != nil || len(entries) != 1 || entries[0].Name() != "app.yaml" {
		t.Errorf("files %v, %v, want app.yaml alone", entries, err)
	}
}
