package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/golden"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/report"
)

// TestScripts breaks a good mesh as each script says and compares all that a
// person would see. A script's lines:
//
//	run [pre|crds|proxy] [json|short] [wait=1m] [-n=shop] [cni] [expect=v2]
//	later DAYS                        the certificates age
//	delete KIND [NS/]NAME
//	set KIND [NS/]NAME PATH YAML      path is a.b.0.c; an empty value removes it
//	page POD:PORT/PATH TEXT           no text: nothing listens there
//	deny RESOURCE                     we have no rights to it
//	fail RESOURCE                     the API server does not answer for it
//	unfail RESOURCE
//	heal AFTER                        all is as at the start again, after a time
func TestScripts(t *testing.T) {
	for _, f := range golden.Files(t, "testdata/*.txtar") {
		t.Run(f.Name, func(t *testing.T) {
			var got []byte
			synctest.Test(t, func(t *testing.T) { got = play(t, string(f.Files[0].Data)) })
			f.Want(t, string(got))
		})
	}
}

// stage is what a script acts on.
type stage struct {
	c    *cluster
	now  time.Time
	heal time.Duration // 0: never
	out  bytes.Buffer
}

func play(t *testing.T, script string) []byte {
	t.Helper()
	s := &stage{c: mesh(t), now: today}
	for line := range strings.SplitSeq(script, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.act(t, words, line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return s.out.Bytes()
}

func (s *stage) act(t *testing.T, words []string, line string) error {
	t.Helper()
	rest := func(n int) string { return strings.TrimSpace(strings.Join(words[min(n, len(words)):], " ")) }
	switch words[0] {
	case "run":
		return s.run(t, words[1:])
	case "later":
		days, err := strconv.Atoi(words[1])
		s.now = s.now.Add(time.Duration(days) * 24 * time.Hour)
		return err
	case "heal":
		after, err := time.ParseDuration(words[1])
		s.heal = after
		return err
	case "delete":
		for i, o := range s.c.objects {
			if o.GetKind() == words[1] && title(o) == words[2] {
				s.c.objects = append(s.c.objects[:i:i], s.c.objects[i+1:]...)
				return nil
			}
		}
		return errors.New("there is no such object")
	case "set":
		for _, o := range s.c.objects {
			if o.GetKind() == words[1] && title(o) == words[2] {
				return setPath(o, words[3], rest(4))
			}
		}
		return errors.New("there is no such object")
	case "add":
		_, doc, _ := strings.Cut(line, " ")
		s.c.add(t, doc)
	case "page":
		if s.c.pages[words[1]] = strings.ReplaceAll(rest(2), `\n`, "\n") + "\n"; rest(2) == "" {
			delete(s.c.pages, words[1])
		}
	case "deny":
		s.c.denied[words[1]] = true
	case "fail":
		s.c.failing[words[1]] = errors.New("the API server does not answer")
	case "unfail":
		delete(s.c.failing, words[1])
	default:
		return errors.New("no such word")
	}
	return nil
}

func title(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

func setPath(o *unstructured.Unstructured, path, text string) error {
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	at, parts := any(o.Object), strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for i, part := range parts {
		part = strings.ReplaceAll(part, "\x00", ".")
		last := i == len(parts)-1
		switch node := at.(type) {
		case map[string]any:
			switch {
			case last && text == "":
				delete(node, part)
			case last:
				node[part] = value
			default:
				if node[part] == nil {
					node[part] = map[string]any{}
				}
				at = node[part]
			}
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n >= len(node) {
				return fmt.Errorf("no element %q", part)
			}
			if last {
				node[n] = value
			} else {
				at = node[n]
			}
		default:
			return fmt.Errorf("%q leads nowhere", part)
		}
	}
	return nil
}

func (s *stage) run(t *testing.T, words []string) error {
	t.Helper()
	begin, healthy := time.Now(), (*cluster)(nil)
	if s.heal > 0 {
		healthy = mesh(t)
	}
	w := &World{
		Namespace: "linkerd", CNINamespace: "linkerd-cni", CLI: "v1",
		Now: func() time.Time { return s.now.Add(time.Since(begin)) },
		Connect: func() (Door, error) {
			if s.c.failing["client"] != nil {
				return nil, &say.Problem{What: "no cluster is known here", Why: "there is no kubeconfig", Next: "name one with --kubeconfig"}
			}
			return s.c, nil
		},
	}
	runner, set, format := engine.Runner{}, Default, report.Table
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "pre":
			set = Pre
		case "crds":
			set = CRDs
		case "proxy":
			set = Proxy
		case "json", "short":
			format = report.Format(name)
		case "wait":
			wait, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			runner.Wait = wait
		case "-n":
			w.Target = value
		case "cni":
			w.CNI = true
		case "expect":
			w.Expected = value
		case "newest":
			w.Newest = func(context.Context) (string, error) {
				if value == "" {
					return "", &say.Problem{What: "the newest version is not known", Next: "look"}
				}
				return value, nil
			}
		case "manifests":
			w.Manifests = func() ([]*unstructured.Unstructured, error) {
				obj := &unstructured.Unstructured{}
				obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"})
				obj.SetName("linkerd-linkerd-identity")
				return []*unstructured.Unstructured{obj}, nil
			}
		default:
			return fmt.Errorf("no flag %q", word)
		}
	}
	fmt.Fprintf(&s.out, "$ check %s\n", strings.Join(words, " "))
	writer := &report.Writer{Out: &s.out, Format: format, Hints: "#"}
	runner.Tell = func(r engine.Result) {
		writer.Tell(r)
		if healthy != nil && time.Since(begin) >= s.heal {
			*s.c = *healthy
		}
	}
	outcome, err := runner.Run(t.Context(), w.Categories(set))
	if err != nil {
		return err
	}
	if took := time.Since(begin); took > 0 {
		fmt.Fprintf(&s.out, "(after %s)\n", took)
	}
	return writer.End(outcome)
}
