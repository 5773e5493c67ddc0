package check

import (
	"os"
	"strings"
	"testing"
)

// Every anchor is explained on the page that hints lead to, and every check of
// the page exists.
func TestEveryHintIsOnThePage(t *testing.T) {
	page, err := os.ReadFile("CHECKS.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	anchors := map[string]bool{"extensions": true}
	names := map[string]bool{}
	w := &World{Namespace: "linkerd", CNI: true}
	for _, set := range []Set{Default, Pre, CRDs, Proxy} {
		for _, c := range w.Categories(set) {
			if !strings.Contains(text, "## "+c.Name+"\n") {
				t.Errorf("the page has no category %s", c.Name)
			}
			for _, one := range c.Checks {
				anchors[one.Anchor], names[one.Name] = true, true
				if one.Run == nil || one.Name == "" || one.Anchor == "" {
					t.Errorf("%s/%s lacks a name, an anchor or its question", c.Name, one.Name)
				}
				if !strings.Contains(text, "**"+one.Name+"**") {
					t.Errorf("the page does not explain %q", one.Name)
				}
			}
		}
	}
	const mark = `<a id="`
	for a := range anchors {
		if strings.Count(text, mark+a+`"></a>`) != 1 {
			t.Errorf("the page has no anchor %s, or several", a)
		}
	}
	for part := range strings.SplitSeq(text, mark) {
		if id, _, ok := strings.Cut(part, `"></a>`); ok && !anchors[id] {
			t.Errorf("the page explains %s, which no check leads to", id)
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if _, after, ok := strings.Cut(line, "- **"); ok {
			if name, _, _ := strings.Cut(after, "**"); !names[name] {
				t.Errorf("the page explains a check %q, which does not exist", name)
			}
		}
	}
}
