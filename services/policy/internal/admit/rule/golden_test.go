package rule_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/policy/internal/admit/rule"
)

// TestGolden judges the specs in testdata: a file a kind, a section a spec, and
// after each what becomes of it. The head of a file says which kind it is; a
// section may be a whole object.
func TestGolden(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			group, kind, found := strings.Cut(strings.TrimSpace(strings.SplitN(string(f.Comment), "\n", 2)[0]), "/")
			if !found {
				t.Fatalf("the head %q is not group/kind", f.Comment)
			}
			var out []txtar.File
			for _, spec := range f.Files {
				if strings.HasSuffix(spec.Name, " is") {
					continue
				}
				if !json.Valid(spec.Data) {
					t.Fatalf("%s is not JSON", spec.Name)
				}
				got := verdict(rule.Judge(rule.Object{Group: group, Kind: kind, Namespace: "grove", Raw: whole(spec.Data)}))
				out = append(out, spec, txtar.File{Name: spec.Name + " is", Data: []byte(got + "\n")})
				if word := strings.Fields(strings.ReplaceAll(got, ":", " "))[0]; !strings.HasPrefix(spec.Name, word) {
					t.Errorf("%s is %s", spec.Name, got)
				}
			}
			f.Whole(t, out)
		})
	}
}

// whole makes an object of a spec.
func whole(body []byte) []byte {
	if strings.Contains(string(body), `"metadata"`) || strings.HasPrefix(string(body), `"`) {
		return body
	}
	return []byte(`{"metadata":{"name":"x","namespace":"grove"},"spec":` + string(body) + `}`)
}

func verdict(v rule.Verdict) string {
	switch {
	case v.Unread != nil:
		return "unread: " + v.Unread.Error()
	case len(v.Problems) > 0:
		return "denied\n" + rule.Text(v.Problems)
	}
	return "admitted"
}

// TestForeign: what is none of our kinds is admitted, whatever it is.
func TestForeign(t *testing.T) {
	for _, o := range []rule.Object{
		{Group: "apps", Kind: "Deployment", Raw: []byte(`{"spec":7}`)},
		{Group: "gateway.networking.k8s.io", Kind: "Gateway", Raw: []byte(`{`)},
		{Group: "policy.linkerd.io", Kind: "Tomorrow", Raw: nil},
		{Group: "", Kind: "Server", Raw: nil},
	} {
		if v := rule.Judge(o); v.Kind != "" || v.Problems != nil || v.Unread != nil {
			t.Errorf("%s of %q: %+v", o.Kind, o.Group, v)
		}
	}
}

// TestSpelling: kind and group are compared without case, and any version has the
// same rules.
func TestSpelling(t *testing.T) {
	v := rule.Judge(rule.Object{Group: "Policy.Linkerd.IO", Kind: "server", Raw: []byte(`{"apiVersion":"policy.linkerd.io/v9","spec":{}}`)})
	if v.Kind != "Server" || len(v.Problems) == 0 {
		t.Errorf("got %+v", v)
	}
}

// TestBounds: an answer stays small however much is wrong, and a deep condition
// ends.
func TestBounds(t *testing.T) {
	many := `{"spec":{"networks":[` + strings.TrimSuffix(strings.Repeat(`{"cidr":"`+strings.Repeat("x", 1000)+`"},`, 100), ",") + `]}}`
	v := rule.Judge(rule.Object{Group: "policy.linkerd.io", Kind: "NetworkAuthentication", Raw: []byte(many)})
	if text := rule.Text(v.Problems); len(v.Problems) != 8 || len(text) > 4096 {
		t.Errorf("%d problems in %d bytes", len(v.Problems), len(text))
	}
	deep := `{"metadata":{"name":"x"},"spec":{"routes":[{"name":"a","condition":` + strings.Repeat(`{"not":`, 500) + `{"method":"GET"}` + strings.Repeat("}", 500) + `}]}}`
	v = rule.Judge(rule.Object{Group: "linkerd.io", Kind: "ServiceProfile", Raw: []byte(deep)})
	if text := rule.Text(v.Problems); !strings.Contains(text, "nested too deeply") {
		t.Errorf("got %q", text)
	}
}

func FuzzJudge(f *testing.F) {
	kinds := [][2]string{
		{"policy.linkerd.io", "Server"},
		{"policy.linkerd.io", "ServerAuthorization"},
		{"policy.linkerd.io", "AuthorizationPolicy"},
		{"policy.linkerd.io", "MeshTLSAuthentication"},
		{"policy.linkerd.io", "NetworkAuthentication"},
		{"policy.linkerd.io", "HTTPLocalRateLimitPolicy"},
		{"policy.linkerd.io", "EgressNetwork"},
		{"policy.linkerd.io", "HTTPRoute"},
		{"gateway.networking.k8s.io", "HTTPRoute"},
		{"gateway.networking.k8s.io", "GRPCRoute"},
		{"gateway.networking.k8s.io", "TLSRoute"},
		{"linkerd.io", "ServiceProfile"},
	}
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		group, kind, _ := strings.Cut(strings.TrimSpace(string(a.Comment)), "/")
		which := slices.Index(kinds, [2]string{group, kind})
		for _, s := range a.Files {
			if !strings.HasSuffix(s.Name, " is") {
				f.Add(uint8(max(which, 0)), whole(s.Data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		k := kinds[int(which)%len(kinds)]
		v := rule.Judge(rule.Object{Group: k[0], Kind: k[1], Namespace: "grove", Raw: raw})
		for _, p := range v.Problems {
			if p.What == "" || p.Why == "" || p.Next == "" {
				t.Errorf("%s: %+v lacks words", k[1], p)
			}
		}
		if !json.Valid(raw) && v.Problems == nil && v.Unread == nil {
			t.Errorf("%s: what is no JSON is admitted", k[1])
		}
	})
}
