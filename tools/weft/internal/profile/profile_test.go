package profile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube/kubetest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// run runs the command as the tree would.
func run(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	out, _, err := kubetest.Play(t, in, append([]string{"profile"}, args...), Command())
	return out, err
}

// Each file holds arguments, what comes in, and what is written or refused.
func TestGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			got, err := run(t, string(f.Part("in")), append([]string{"--ignore-cluster"}, strings.Fields(string(f.Part("args")))...)...)
			if p, ok := errors.AsType[*say.Problem](err); ok {
				got += p.Error() + "\nwhy: " + p.Why + "\n"
			} else if err != nil {
				t.Fatal(err)
			}
			f.Want(t, got)
		})
	}
}

func TestCommandLinesThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{
		{"web"},
		{"--template"},
		{"--template", "--proto", "-", "web"},
		{"--template", "web", "more"},
		{"--template", "Web"},
		{"--template", "web.shop"},
		{"--template", "web", "-n", "a.b"},
	} {
		_, err := run(t, "", args...)
		if p, ok := errors.AsType[*say.Problem](err); !ok || p.Exit() != usage.Exit {
			t.Errorf("profile %v = %v, want exit code %d", args, err, usage.Exit)
		}
	}
}

func TestFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.proto")
	if err := os.WriteFile(file, []byte("service S { rpc M (A) returns (B); }"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := run(t, "", "--ignore-cluster", "--proto", file, "web"); err != nil || !strings.Contains(got, "pathRegex: /S/M\n") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := run(t, "", "--ignore-cluster", "--proto", file+"x", "web"); err == nil {
		t.Error("a file that is not there is read")
	}
	if _, err := run(t, strings.Repeat("x", most+1), "--ignore-cluster", "--proto", "-", "web"); err == nil {
		t.Error("an endless file is read")
	}
}

func TestClusterDomain(t *testing.T) {
	s := kubetest.Start(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: linkerd-config, namespace: linkerd}\ndata: {values: 'clusterDomain: example.org'}\n")
	got, err := run(t, "", "--kubeconfig", s.Kubeconfig, "--template", "-n", "shop", "-o", "json", "web")
	if err != nil || !strings.Contains(got, `"name": "web.shop.svc.example.org"`) {
		t.Errorf("%v\n%s", err, got)
	}
	bare := kubetest.Start(t, "")
	_, err = run(t, "", "--kubeconfig", bare.Kubeconfig, "--template", "web")
	if p, ok := errors.AsType[*say.Problem](err); !ok || !strings.Contains(p.Next, "--ignore-cluster") {
		t.Errorf("without a mesh: %v", err)
	}
}

// What is no description makes an error, never a panic or an endless loop.
func FuzzProto(f *testing.F) {
	f.Add("syntax = 'proto3'; package a.b; service S { rpc M (stream A) returns (B) { option (x) = {y: \"}\"}; } }")
	f.Add("service{}'")
	f.Add("service S{rpc")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := FromProto(Service{"web", "shop", "cluster.local"}, []byte(text))
		for _, r := range p.Spec.Routes {
			if err != nil || r.Name == "" || r.Condition.PathRegex == "" {
				t.Errorf("%v, %+v", err, r)
			}
		}
	})
}

func FuzzOpenAPI(f *testing.F) {
	f.Add("swagger: '2.0'\nbasePath: /a\npaths: {/b/{c}: {get: {responses: {200: {}, default: {}}}}}")
	f.Add(`{"openapi":"3.0.0","paths":{"":{"get":{}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := FromOpenAPI(Service{"web", "shop", "cluster.local"}, []byte(text))
		for _, r := range p.Spec.Routes {
			if err != nil || !strings.Contains(r.Name, " /") || r.Condition.PathRegex == "" {
				t.Errorf("%v, %+v", err, r)
			}
		}
	})
}
