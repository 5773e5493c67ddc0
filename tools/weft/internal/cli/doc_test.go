package cli

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestDoc: every command that help lists is in the reference, with its flags, and
// every annotation once.
func TestDoc(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := Main(t.Context(), []string{"doc"}, &out, &errOut); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	var r reference
	if err := yaml.UnmarshalStrict(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	known := map[string]commandDoc{}
	for _, c := range r.CLIReference {
		if c.Synopsis == "" || c.Description == "" || len(c.SeeAlso) == 0 {
			t.Errorf("%s: %+v", c.Name, c)
		}
		known[c.Name] = c
	}
	for _, name := range []string{"weft check", "weft install", "weft inject", "weft identity rotate", "weft diagnostics policy", "weft profile", "weft authz"} {
		if _, ok := known[name]; !ok {
			t.Errorf("%s is not in the reference", name)
		}
	}
	if _, ok := known["weft doc"]; ok {
		t.Error("a hidden command is in the reference")
	}
	for _, o := range known["weft check"].Options {
		if o.Name == "cli-version-override" || o.Usage == "" {
			t.Errorf("option %+v", o)
		}
	}
	if len(known["weft check"].InheritedOptions) == 0 {
		t.Error("no inherited options")
	}
	seen := map[string]bool{}
	for _, a := range r.AnnotationsReference {
		if seen[a.Name] || a.Description == "" || !strings.Contains(a.Name, "linkerd.io/") {
			t.Errorf("annotation %+v", a)
		}
		seen[a.Name] = true
	}
}
