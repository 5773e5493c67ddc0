package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRefusals: what makes no sense does nothing, and says so.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	for line, want := range map[string]string{
		"":                          "no command",
		"-bogus up":                 "reading flags",
		"dwon":                      `"dwon"`,
		"up two":                    "two",
		"up -nodes 99 -name c1":     "nodes",
		"-name C1 up":               "no name",
		"up -light extra":           "extra",
		"down c2":                   "c2",
		"-name c2 down -all":        "exclude",
		"status all":                "all",
		"kubeconfig":                "no cluster c1",
		"-name c2 kubectl get pods": "no cluster c2",
		"kubeconfig c1":             "c1",
		"load":                      "files",
		"load x.tar":                "no cluster c1 runs",
		"exec n1":                   "a command",
		"exec n1 true":              "no cluster c1 runs",
		"stop n1":                   "a component",
		"stop n1 etcd":              "no cluster c1 runs",
		"images -only prxy":         "prxy",
	} {
		t.Run(line, func(t *testing.T) {
			args := append([]string{"-dir", dir}, strings.Fields(line)...)
			err := run(t.Context(), args, os.Stderr)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error about %q", err, want)
			}
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v was made, %v", left, err)
	}
}

func TestNothingToDo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for line, want := range map[string]string{
		"status":    "no cluster in " + dir + "\n",
		"down":      "",
		"down -all": "",
	} {
		var out strings.Builder
		args := append([]string{"-dir", dir}, strings.Fields(line)...)
		if err := run(t.Context(), args, &out); err != nil || out.String() != want {
			t.Errorf("%s says %q, %v, want %q", line, out.String(), err, want)
		}
	}
}

// TestUsageNamesEveryCommand so that none is forgotten there.
func TestUsageNamesEveryCommand(t *testing.T) {
	for name := range commands {
		if !strings.Contains(usage, name) {
			t.Errorf("the usage doesn't name %s", name)
		}
	}
}
