package manifest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestParse(t *testing.T) {
	type doc struct {
		Line int
		Raw  string
	}
	tests := []struct {
		name, in string
		want     []doc
	}{
		{"nothing", "", nil},
		{"marks and comments alone", "---\n# nothing\n--- # here\n\n...\n", nil},
		{"one", "a: 1\n", []doc{{1, "a: 1\n"}}},
		{"no new line at the end", "a: 1\n---\nb: 2", []doc{{1, "a: 1\n"}, {3, "b: 2"}}},
		{"content on the mark's line", "--- {a: 1}\n--- {b: 2}\n", []doc{{1, " {a: 1}\n"}, {2, " {b: 2}\n"}}},
		{"a byte order mark, CRLF", "\xef\xbb\xbf---\r\na: 1\r\n---\r\nb: 2\r\n", []doc{{2, "a: 1\r\n"}, {4, "b: 2\r\n"}}},
		{"a directive", "%YAML 1.2\n---\na: 1\n...\n%YAML 1.2\n---\nb: 2\n", []doc{{3, "a: 1\n"}, {7, "b: 2\n"}}},
		{"dashes that are no marks", "a: |\n  ---\n  x\nb: ---x\n----: 1\n", []doc{{1, "a: |\n  ---\n  x\nb: ---x\n----: 1\n"}}},
		{"JSON behind JSON", "{\"a\": 1} {\"b\": 2}\n\n{\"c\":\n3}", []doc{{1, "{\"a\": 1}\n"}, {1, "{\"b\": 2}\n"}, {3, "{\"c\":\n3}\n"}}},
		{"YAML that looks like JSON", "{a: 1}\n", []doc{{1, "{a: 1}\n"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Parse("test", []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			var got []doc
			for _, d := range docs {
				got = append(got, doc{d.Line, string(d.Raw)})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"a: 1\n---\n- x\n":     "test, line 3: this is no Kubernetes object: it has no fields",
		"a: 1\n---\n\nb: [\n":  "test, line 3: this is no Kubernetes object: yaml: ",
		"text":                 "test, line 1: this is no Kubernetes object: it has no fields",
		"{a: 1} junk":          "test, line 1: this is no Kubernetes object: yaml: ",
		"{a: 1}\nb: 2\n":       "test, line 1: this is no Kubernetes object: yaml: ",
		"{\"a\": 1} {\"b\": 2": "test, line 1: this is no Kubernetes object",
	} {
		if _, err := Parse("test", []byte(in)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want %s…", in, err, want)
		}
	}
}

func TestNumbersStay(t *testing.T) {
	docs, err := Parse("test", []byte("a: 9007199254740993\nb: 0.5\nc: 1e3\n"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	docs[0].Raw = nil
	if err := Write(&b, YAML, docs); err != nil || b.String() != "a: 9007199254740993\nb: 0.5\nc: 1000\n---\n" {
		t.Errorf("Write() = %q, %v", b.String(), err)
	}
}

// FuzzParse: nothing panics, no text is lost between marks, and what is written
// reads back as the same objects.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"a: 1\n---\nb: 2\n", "--- {a: 1}\n...\n", "{\"a\": 1}{\"b\": 2}", "%YAML 1.1\n---\na: |\n  ---\n", "\xef\xbb\xbfa: &x [1]\nb: *x\n",
		"a: 1\r\n---\r\n", "---\n---x\n", "- 1\n", "{}", "a: !!binary aGk=\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		parts := split(in)
		for _, p := range parts {
			if len(bytes.TrimSpace(p.text)) == 0 || !bytes.Contains(in, bytes.TrimRight(p.text, "\n")) && bytes.Count(p.text, []byte("\n")) < 2 {
				t.Errorf("part %q is not of the input", p.text)
			}
			if p.line < 1 || p.line > bytes.Count(in, []byte("\n"))+1 {
				t.Errorf("part on line %d of %d", p.line, bytes.Count(in, []byte("\n"))+1)
			}
		}
		docs, err := Parse("fuzz", in)
		if err != nil {
			return
		}
		for _, format := range []Format{YAML, JSON} {
			var b bytes.Buffer
			for i := range docs {
				docs[i].Raw = nil
			}
			if err := Write(&b, format, docs); err != nil {
				continue // a float that JSON cannot say
			}
			again, err := Parse("again", b.Bytes())
			if err != nil {
				t.Fatalf("what was written cannot be read: %v\n%s", err, b.Bytes())
			}
			if !reflect.DeepEqual(normal(t, docs), normal(t, again)) {
				t.Errorf("%s: objects %v came back as %v", format, docs, again)
			}
		}
	})
}

// normal is the objects as JSON: a float without a fraction may come back whole.
func normal(t *testing.T, docs []Document) []any {
	t.Helper()
	var out []any
	for _, d := range docs {
		text, err := json.Marshal(d.Object)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "b: 1", "a/x.json": `{"a": 1}`, "c.txt": "c: 1"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, "u: 1\n---\nu: 2\n")
	}))
	defer srv.Close()
	tests := []struct {
		name, source string
		want         []string // the first key of each object, or the error
	}{
		{"directory", dir, []string{"a", "b"}},
		{"file", filepath.Join(dir, "b.yaml"), []string{"b"}},
		{"input", "-", []string{"in"}},
		{"URL", srv.URL + "/ok", []string{"u", "u"}},
		{"no such page", srv.URL + "/no", []string{"cannot read " + srv.URL + "/no: the server answered 404 Not Found"}},
		{"no such file", filepath.Join(dir, "none"), []string{"cannot read " + filepath.Join(dir, "none") + ": there is no such file"}},
		{"a password stays secret", "http://me:hush@127.0.0.1:1/x", []string{"cannot read http://me:xxxxx@127.0.0.1:1/x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Read(t.Context(), tt.source, strings.NewReader("in: 1"))
			var got []string
			for _, d := range docs {
				for key := range d.Object {
					got = append(got, key)
				}
			}
			if err != nil {
				if !strings.HasPrefix(err.Error(), tt.want[0]) || strings.Contains(err.Error(), "hush") {
					t.Errorf("Read() = %v, want %s…", err, tt.want[0])
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Read() (-want +got):\n%s", diff)
			}
		})
	}
}

// endless is a pipe that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestReadIsBounded(t *testing.T) {
	if _, err := take("input", endless{}, 1000); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("take() = %v", err)
	}
}

// A manifest full of aliases of aliases must not fill memory.
func TestParseRefusesBombs(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		p := string(c - 1)
		bomb += string(c) + ": &" + string(c) + " [*" + p + strings.Repeat(",*"+p, 8) + "]\n"
	}
	if _, err := yaml.YAMLToJSON([]byte(bomb)); err == nil {
		t.Fatal("the YAML library takes bombs now")
	}
	if _, err := Parse("test", []byte(bomb)); err == nil {
		t.Error("Parse() took a bomb")
	}
}
