package caseset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// head is what tells whose a line is.
type head struct {
	Area    string `json:"area"`
	Request struct {
		K8s string `json:"k8s"`
	} `json:"request"`
}

// of tells whether a line is of an area, or of a part of it.
func (h head) of(area string) bool {
	whole, _, _ := strings.Cut(h.Area, ".")
	return whole == area
}

// load reads the lines that are wanted from every *.jsonl file of a directory; there may
// be none. An unreadable line is an error that names the file and the line.
func load[T any](dir string, wanted func(head) bool) ([]T, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("listing cases: %w", err)
	}
	slices.Sort(files)
	var all []T
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading cases: %w", err)
		}
		if all, err = parse(all, body, wanted); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
	}
	return all, nil
}

func parse[T any](to []T, body []byte, wanted func(head) bool) ([]T, error) {
	n := 0
	for line := range bytes.Lines(body) {
		n++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var h head
		if err := json.Unmarshal(line, &h); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if !wanted(h) {
			continue
		}
		var c T
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		to = append(to, c)
	}
	return to, nil
}
