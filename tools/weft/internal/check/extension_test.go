package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const goodAnswer = `{"success":false,"categories":[{"categoryName":"linkerd-viz","checks":[
	{"description":"a","result":"success"},
	{"description":"b","result":"warning","error":"old","hint":"https://x/#b"},
	{"description":"c","result":"error"}]}]}`

func TestExtensions(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, file := range []string{"linkerd-viz", "linkerd-always", "linkerd-liar", "linkerd-broken", "kubectl"} {
		if err := os.WriteFile(filepath.Join(first, file), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"linkerd-viz", "linkerd-plain"} { // shadowed, and not executable
		if err := os.WriteFile(filepath.Join(second, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var ran []string
	e := Extensions{Dirs: []string{"/does/not/exist", first, second}, Exec: func(_ context.Context, program string, args ...string) ([]byte, error) {
		name := filepath.Base(program)
		ran = append(ran, name+" "+strings.Join(args, " "))
		switch {
		case args[0] == "_extension-metadata" && name == "linkerd-always":
			return []byte(`{"name":"Linkerd-Always","checks":"always"}`), nil
		case args[0] == "_extension-metadata" && name == "linkerd-liar":
			return []byte(`{"name":"linkerd-other","checks":"always"}`), nil
		case args[0] == "_extension-metadata":
			return nil, errors.New("no such command")
		case name == "linkerd-broken":
			return []byte("Usage:"), nil
		}
		return []byte(goodAnswer), nil
	}}
	c := mesh(t)
	for _, name := range []string{"viz", "broken", "plain", "../../bin/sh"} {
		c.add(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %q, labels: {linkerd.io/extension: %q}}\n", "of-"+name, name))
	}
	got, err := e.Results(t.Context(), &World{door: c}, []string{"--proxy"})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range got {
		lines = append(lines, fmt.Sprintf("%s/%s %s %s %v", r.Category, r.Check.Name, r.Verdict(), r.Check.Anchor, r.Err))
	}
	want := []string{
		"linkerd-viz/a success  <nil>", "linkerd-viz/b warning https://x/#b old", "linkerd-viz/c error  it does not say why", // always's
		"linkerd-broken/Running: linkerd-broken check --proxy --output=json error extensions its answer cannot be used: invalid character 'U' looking for beginning of value",
		`linkerd-plain/Linkerd extension command linkerd-plain exists warning extensions exec: "linkerd-plain": executable file not found in $PATH`,
		"linkerd-viz/a success  <nil>", "linkerd-viz/b warning https://x/#b old", "linkerd-viz/c error  it does not say why",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if i := len(ran); i != 7 {
		t.Errorf("ran %q, want four for their metadata and three checks", ran)
	}
}

func TestExecute(t *testing.T) {
	script := func(text string) string {
		file := filepath.Join(t.TempDir(), "linkerd-x")
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	var said bytes.Buffer
	run := execute(&said)
	if out, err := run(t.Context(), script("echo '{}'; echo careful >&2; exit 1")); err != nil || string(out) != "{}\n" || said.String() != "careful\n" {
		t.Errorf("a check that failed: %q, %v, %q", out, err, said.String())
	}
	if _, err := run(t.Context(), script("exit 1")); err == nil {
		t.Error("a program that failed and said nothing is no error")
	}
	if _, err := run(t.Context(), script("echo '{}'; exit 2")); err == nil {
		t.Error("a program that died is no error")
	}
	if _, err := run(t.Context(), script("yes | head -c 20000000")); err == nil {
		t.Error("a program that writes without end is no error")
	}
}

func FuzzExtensionAnswer(f *testing.F) {
	f.Add([]byte(goodAnswer))
	f.Fuzz(func(t *testing.T, answer []byte) {
		e := Extensions{Exec: func(context.Context, string, ...string) ([]byte, error) { return answer, nil }}
		for _, r := range e.ask(t.Context(), "x", "linkerd-x", nil) {
			_ = r.Verdict()
		}
	})
}
