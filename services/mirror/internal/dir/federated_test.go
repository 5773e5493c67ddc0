package dir_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/mirror/internal/derive"
	"github.com/weftmesh/weft/services/mirror/internal/dir"
)

func members(cluster string, services ...string) []derive.Member {
	var t derive.Tables
	for _, n := range services {
		t.Services = append(t.Services, &busv1.Service{
			Namespace: "pottery", Name: n, Ports: []*busv1.ServicePort{{Port: 80}},
			Labels: map[string]string{derive.LabelFederated: "member"},
		})
	}
	out, _ := derive.Members(t, derive.Link{Cluster: cluster})
	return out
}

// Mirrors of several clusters write one file at the same time; each one's part
// is in it afterwards, and the last that leaves removes it.
func TestJoin(t *testing.T) {
	path := t.TempDir()
	clusters := []string{"", "a", "b", "c", "d"}
	join := func(services ...string) {
		t.Helper()
		var all sync.WaitGroup
		for _, c := range clusters {
			all.Go(func() {
				if _, err := (&dir.Sink{Path: path, Cluster: c}).Join(t.Context(), members(c, services...)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	file := filepath.Join(path, "federated.pottery.kiln-federated.yaml")
	for range 3 { // again changes nothing
		join("kiln")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var svc corev1.Service
		if err := yaml.Unmarshal(b, &svc); err != nil {
			t.Fatal(err)
		}
		remotes := svc.Annotations[derive.AnnotationRemotes]
		if svc.Annotations[derive.AnnotationLocal] != "kiln" || strings.Count(remotes, "kiln@") != 4 || strings.Count(remotes, ",") != 3 {
			t.Fatalf("annotations %v", svc.Annotations)
		}
	}
	join()
	left, err := filepath.Glob(filepath.Join(path, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{filepath.Join(path, ".federated.lock")}, left); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A file that is not ours under a name of ours is reported and left alone.
func TestJoinLeavesForeignFiles(t *testing.T) {
	path := t.TempDir()
	file := filepath.Join(path, "federated.pottery.kiln-federated.yaml")
	for _, content := range []string{"kind: Service\nmetadata: {name: kiln}\n", ": nonsense", ""} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, want := range [][]derive.Member{nil, members("east", "kiln", "wheel")} {
			if _, err := (&dir.Sink{Path: path, Cluster: "east"}).Join(t.Context(), want); err == nil {
				t.Errorf("Join() over %q = nil", content)
			}
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != content {
			t.Errorf("%q became %q, %v", content, b, err)
		}
		// One bad file does not keep the others from being written.
		if _, err := os.Stat(filepath.Join(path, "federated.pottery.wheel-federated.yaml")); err != nil {
			t.Error(err)
		}
	}
}
