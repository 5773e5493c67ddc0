package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/dir"
	"github.com/weftmesh/weft/services/mirror/internal/feed"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

// side is one cluster: its log, and the mirror that reads it.
type side struct {
	t      *testing.T
	writer *bus.Writer
}

func newSide(ctx context.Context, t *testing.T, mem *bustest.Mem, cfg config, path string) *side {
	t.Helper()
	log := cfg.ClusterName
	if cfg.LocalMirror {
		log = "here"
	}
	there, here := mem.Join(log), mem.Join(log)
	standby := bus.NewReader(there, bus.ReaderConfig{})
	reader := bus.NewReader(here, bus.ReaderConfig{Tables: feed.Tables()})
	rules, err := cfg.rules()
	if err != nil {
		t.Fatal(err)
	}
	copies := feed.New(reader, rules)
	s := &side{t: t, writer: bus.NewWriter(there, standby, bus.WriterConfig{})}
	out := &dir.Sink{Path: path, Cluster: cfg.ClusterName}
	loop := reconcile.New(copies, cfg.gateway(rules, nil), out, reconcile.Config{}, prometheus.NewPedanticRegistry())
	for _, part := range []func(context.Context) error{there.Run, standby.Run, s.writer.Run, here.Run, reader.Run, copies.Run, loop.Run} {
		go func() { _ = part(ctx) }()
	}
	return s
}

// kiln is a member of this port, or none if it is 0.
func (s *side) kiln(ctx context.Context, port uint32) {
	s.t.Helper()
	row := &busv1.Service{Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Port: max(port, 1)}}}
	if port > 0 {
		row.Labels = map[string]string{derive.LabelFederated: "member", derive.LabelExported: "remote-discovery"}
	}
	if _, err := s.writer.Append(ctx, []bus.Change{{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("pottery", "kiln"), Value: bus.Encode(row)}}, time.Now()); err != nil {
		s.t.Fatal(err)
	}
}

// Two clusters and this one share a service, each by its own mirror; a link
// that is down takes nobody out of it.
func TestFederation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		mem, path := bustest.Memory(), t.TempDir()
		sides := map[string]*side{}
		for name, args := range map[string]config{
			"east": {ClusterName: "east"}, "west": {ClusterName: "west"}, "here": {LocalMirror: true},
		} {
			cfg := defaults()
			cfg.ClusterName, cfg.LocalMirror = args.ClusterName, args.LocalMirror
			sides[name] = newSide(ctx, t, mem, cfg, path)
		}
		pass := func() {
			timer := time.NewTimer(40 * time.Second) // a round comes every 30 s
			<-timer.C
			synctest.Wait()
		}
		want := func(when, local, remotes string, port int32, copies ...string) {
			t.Helper()
			pass()
			var svc corev1.Service
			b, err := os.ReadFile(filepath.Join(path, "federated.pottery.kiln-federated.yaml"))
			if remotes == "" && local == "" {
				if !os.IsNotExist(err) {
					t.Errorf("%s: %v, %s", when, err, b)
				}
			} else if err := yaml.Unmarshal(b, &svc); err != nil || len(svc.Spec.Ports) != 1 || svc.Annotations[derive.AnnotationLocal] != local ||
				svc.Annotations[derive.AnnotationRemotes] != remotes || svc.Spec.Ports[0].Port != port {
				t.Errorf("%s: %v, %v, want %s, %s and port %d in\n%s", when, err, svc.Annotations, local, remotes, port, b)
			}
			files, err := filepath.Glob(filepath.Join(path, "mirror.*"))
			if err != nil || len(files) != len(copies) {
				t.Errorf("%s: copies %v, %v, want %v", when, files, err, copies)
			}
		}
		for _, s := range sides {
			if err := s.writer.Lead(ctx, nil); err != nil {
				t.Fatal(err)
			}
		}
		sides["east"].kiln(ctx, 80)
		want("one", "", "kiln@east", 80, "east")
		sides["west"].kiln(ctx, 81)
		want("two", "", "kiln@east,kiln@west", 80, "east", "west")
		sides["here"].kiln(ctx, 90)
		want("three", "kiln", "kiln@east,kiln@west", 90, "east", "west")
		sides["east"].kiln(ctx, 0)
		want("east leaves", "kiln", "kiln@west", 90, "west")
		sides["here"].kiln(ctx, 0)
		want("this one leaves: ports are the oldest's that is left", "", "kiln@west", 81, "west")
		sides["west"].kiln(ctx, 0)
		want("all have left", "", "", 0)
		cancel()
		synctest.Wait()
	})
}
