package dir_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/dir"
	"github.com/weftmesh/weft/services/mirror/internal/reconcile"
)

func mirrors(t *testing.T, port uint32, names ...string) []derive.Mirror {
	t.Helper()
	tables := derive.Tables{Endpoints: map[string][]*busv1.Endpoint{}}
	for _, n := range names {
		tables.Services = append(tables.Services, &busv1.Service{
			Namespace: "pottery", Name: n, Ports: []*busv1.ServicePort{{Name: "http", Port: port}},
			Labels: map[string]string{derive.LabelExported: "true"},
		})
		tables.Endpoints["pottery/"+n] = []*busv1.Endpoint{{Ready: true}}
	}
	out, bad := derive.Mirrors(tables, derive.Link{
		Cluster: "east", Domain: "cluster.local",
		Gateway: derive.Gateway{Addresses: []netip.Addr{netip.MustParseAddr("127.0.7.1")}, Port: 4143, Identity: "gw.example"},
	})
	if len(bad) > 0 {
		t.Fatal(bad)
	}
	return out
}

func list(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestApply(t *testing.T) {
	path := t.TempDir()
	// What is not this cluster's copy stays, whatever happens.
	others := []string{
		"app.yaml", "mirror.yaml", "mirror.east-2.pottery.kiln-east-2.yaml", "mirror.west.pottery.kiln-west.yaml",
		// Another mirror of the same cluster writes this one just now.
		".mirror.east.pottery.kiln-east.yaml.1.tmp",
		"mirror.east.pottery.note.txt", "xmirror.east.pottery.kiln.yaml",
	}
	// Left by a process that died; also its copy of a service that is no more.
	left := []string{"mirror.east.pottery.old-east.yaml", ".mirror.east.pottery.older-east.yaml.tmp"}
	for _, f := range slices.Concat(others, left) {
		if err := os.WriteFile(filepath.Join(path, f), []byte("# "+f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(path, left[1]), long, long); err != nil {
		t.Fatal(err)
	}
	s := &dir.Sink{Path: path, Cluster: "east"}
	const kiln, wheel = "mirror.east.pottery.kiln-east.yaml", "mirror.east.pottery.wheel-east.yaml"
	steps := []struct {
		name  string
		want  []derive.Mirror
		files []string
		done  reconcile.Done
	}{
		{"first", mirrors(t, 80, "kiln", "wheel"), []string{kiln, wheel}, reconcile.Done{Created: 2, Deleted: 2}},
		{"nothing new", mirrors(t, 80, "kiln", "wheel"), []string{kiln, wheel}, reconcile.Done{}},
		{"a change", mirrors(t, 81, "kiln", "wheel"), []string{kiln, wheel}, reconcile.Done{Updated: 2}},
		{"one less", mirrors(t, 81, "wheel"), []string{wheel}, reconcile.Done{Deleted: 1}},
		{"unlinked", nil, nil, reconcile.Done{Deleted: 1}},
	}
	for _, step := range steps {
		done, err := s.Apply(t.Context(), step.want)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.done, done); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		want := slices.Concat(others, step.files)
		slices.Sort(want)
		if diff := cmp.Diff(want, list(t, path)); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", step.name, diff)
		}
	}
}

// Whoever reads the directory finds ordinary objects.
func TestManifestIsKubernetes(t *testing.T) {
	m := mirrors(t, 80, "kiln")[0]
	b, err := dir.Manifest(m)
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Split(string(b), "---\n")
	if len(docs) != 2 {
		t.Fatalf("%d documents, want a service and a slice:\n%s", len(docs), b)
	}
	var svc corev1.Service
	var slice discoveryv1.EndpointSlice
	if err := yaml.UnmarshalStrict([]byte(docs[0]), &svc); err != nil {
		t.Error(err)
	}
	if err := yaml.UnmarshalStrict([]byte(docs[1]), &slice); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(m.Service, &svc); diff != "" {
		t.Errorf("service (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(m.Slices[0], &slice); diff != "" {
		t.Errorf("slice (-want +got):\n%s", diff)
	}
}

// One file that cannot be written keeps neither the others nor the deletions.
func TestApplyGoesOnAfterAFailure(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "mirror.east.pottery.kiln-east.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &dir.Sink{Path: path, Cluster: "east"}
	done, err := s.Apply(t.Context(), mirrors(t, 80, "kiln", "wheel"))
	if err == nil || !strings.Contains(err.Error(), "pottery/kiln-east") || done.Created != 1 {
		t.Errorf("Apply() = %+v, %v", done, err)
	}
}

func TestApplyWithoutDirectory(t *testing.T) {
	s := &dir.Sink{Path: filepath.Join(t.TempDir(), "gone"), Cluster: "east"}
	if _, err := s.Apply(t.Context(), nil); err == nil {
		t.Error("Apply() = nil")
	}
}

func TestApplyStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &dir.Sink{Path: t.TempDir(), Cluster: "east"}
	if done, err := s.Apply(ctx, mirrors(t, 80, "kiln")); err == nil || done.Created > 0 {
		t.Errorf("Apply() = %+v, %v", done, err)
	}
}

func ExampleManifest() {
	mirrors, _ := derive.Mirrors(derive.Tables{Services: []*busv1.Service{{
		Namespace: "pottery", Name: "kiln", Ports: []*busv1.ServicePort{{Port: 80}},
		Labels: map[string]string{derive.LabelExported: "true"},
	}}}, derive.Link{Cluster: "east", Domain: "cluster.local"})
	b, _ := dir.Manifest(mirrors[0])
	fmt.Print(string(b))
	// Output:
	// # Written by weft's mirror; changes are lost. Source: kiln.pottery.svc.cluster.local
	// apiVersion: v1
	// kind: Service
	// metadata:
	//   annotations:
	//     mirror.linkerd.io/remote-svc-fq-name: kiln.pottery.svc.cluster.local
	//   labels:
	//     app.kubernetes.io/managed-by: weft-mirror
	//     mirror.linkerd.io/cluster-name: east
	//     mirror.linkerd.io/mirrored-service: "true"
	//   name: kiln-east
	//   namespace: pottery
	// spec:
	//   ports:
	//   - port: 80
	//     protocol: TCP
	//     targetPort: 80
	//   type: ClusterIP
}

// TestTwoMirrorsOfOneCluster write into one directory without harming each other.
func TestTwoMirrorsOfOneCluster(t *testing.T) {
	path := t.TempDir()
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			s := &dir.Sink{Path: path, Cluster: "east"}
			for i := range 50 {
				names := []string{"kiln", "wheel"}
				if _, err := s.Apply(t.Context(), mirrors(t, uint32(80+i), names...)); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := list(t, path); len(got) != 2 {
		t.Errorf("files %v, want the two copies and nothing else", got)
	}
}
