package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/e2e/internal/image"
	"github.com/weftmesh/weft/e2e/internal/repo"
)

// patience is for what a busy machine may take minutes for.
const patience = "180s"

// rig is a cluster under test and what the tests do with it.
type rig struct {
	*cluster.Cluster
	opts cluster.Options
}

// needCluster skips where no cluster can be started, or none was asked for.
func needCluster(t *testing.T) cluster.Options {
	t.Helper()
	if os.Getenv("WEFT_CLUSTER") == "" {
		t.Skip("starts a real Kubernetes, which takes root and a minute; set WEFT_CLUSTER=1 to run it")
	}
	dir, err := os.MkdirTemp("", "weft-cluster-") //nolint:usetesting // a test's own is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	o := cluster.Options{Dir: filepath.Join(dir, "state"), Progress: func(step string) {
		t.Logf("%5.1f s  %s", time.Since(began).Seconds(), step)
	}}
	if err := cluster.Missing(o); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := cluster.Down(context.WithoutCancel(t.Context()), cluster.Options{Dir: o.Dir}); err != nil {
			t.Error(err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return o
}

func up(t *testing.T, o cluster.Options) *rig {
	t.Helper()
	c, err := cluster.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{c, o}
}

// kubectl runs it, with stdin, and returns what it printed.
func (r *rig) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := r.tryKubectl(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (r *rig) tryKubectl(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".bin", "kube", "hyperkube"), append([]string{"kubectl"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig(), "HOME="+t.TempDir())
	cmd.Stdin = strings.NewReader(stdin)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said.Bytes())
	}
	return out.String(), nil
}

// app builds the tests' image and returns its archive.
func app(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary, tar := filepath.Join(dir, "app"), filepath.Join(dir, "app.tar")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/app")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the tests' app: %v\n%s", err, said)
	}
	err := image.Write(tar, image.Spec{
		Name: "weft.local/app:dev", Entrypoint: []string{"/app"}, User: "65534:65534",
		Files: []image.File{{Path: "/app", Source: binary}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tar
}

// serveWeb starts two replicas of the app behind a Service.
func (r *rig) serveWeb(t *testing.T) {
	t.Helper()
	web, err := os.ReadFile("testdata/web.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r.kubectl(t, string(web), "apply", "-f", "-")
	r.kubectl(t, "", "rollout", "status", "deployment/web", "--timeout="+patience)
}

// runPod runs a pod of the app to its end and returns its log.
func (r *rig) runPod(t *testing.T, name, node string, args ...string) string {
	t.Helper()
	pod := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  nodeName: %s
  securityContext: {runAsUser: 0}
  containers:
  - name: app
    image: weft.local/app:dev
    imagePullPolicy: Never
    args: ["%s"]
    volumeMounts: [{name: conf, mountPath: /cni/conf}, {name: bin, mountPath: /cni/bin}]
  volumes:
  - {name: conf, hostPath: {path: /etc/cni/net.d, type: Directory}}
  - {name: bin, hostPath: {path: /opt/cni/bin, type: Directory}}
`, name, node, strings.Join(args, `", "`))
	r.kubectl(t, pod, "apply", "-f", "-")
	if _, err := r.tryKubectl(t, "", "wait", "pod/"+name, "--for=jsonpath={.status.phase}=Succeeded", "--timeout="+patience); err != nil {
		state, _ := r.tryKubectl(t, "", "describe", "pod", name)
		log, _ := r.tryKubectl(t, "", "logs", name)
		t.Fatalf("%v\n%s\n%s", err, state, log)
	}
	return r.kubectl(t, "", "logs", name)
}
