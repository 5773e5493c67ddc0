// Package caseset reads files of black-box cases (shared/cases/README.md),
// turns the proxy API's messages into their vocabulary, and judges answers.
// It is pure but for Load; the processes are started by package cases.
package caseset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Case is one line of a case file.
type Case struct {
	ID      string            `json:"id"`
	Area    string            `json:"area"`
	Given   []json.RawMessage `json:"given"`
	Request Request           `json:"request"`
	Expect  Expect            `json:"expect"`
	Note    string            `json:"note"`
}

// Request is what is asked of the process under test.
type Request struct {
	RPC            string                     `json:"rpc"`
	K8s            string                     `json:"k8s"`
	Scheme         string                     `json:"scheme"`
	Path           string                     `json:"path"`
	Token          json.RawMessage            `json:"token"`
	Flags          map[string]json.RawMessage `json:"flags"`
	Workload       string                     `json:"workload"`
	Port           uint32                     `json:"port"`
	SourceWorkload string                     `json:"source_workload"`
	Target         struct {
		Addr      string `json:"addr"`
		Authority string `json:"authority"`
	} `json:"target"`
	Then []Step `json:"then"`
}

// Step is one change made after the first answer.
type Step struct {
	Op string `json:"op"`
	// Cluster is where the change is made; empty for the cluster under test.
	Cluster string          `json:"cluster"`
	Ref     string          `json:"ref"`
	Object  json.RawMessage `json:"object"`
	Merge   json.RawMessage `json:"merge"`
	Second  float64         `json:"s"`
}

// Message is one expected or received message in the cases' vocabulary.
type Message map[string]any

// Expect is the expected result.
type Expect struct {
	Initial   []Message   `json:"initial"`
	Unordered []Message   `json:"initial_unordered"`
	After     [][]Message `json:"after"`
	Final     Message     `json:"final"`
}

// First returns the messages expected before the first step.
func (e Expect) First() []Message {
	if len(e.Unordered) > 0 {
		return e.Unordered
	}
	return e.Initial
}

// Load reads every *.jsonl file of a directory whose cases name an RPC of the
// destination or policy API. Lines of other kinds are left out. An unreadable
// line is an error that names the file and the line.
func Load(dir string) ([]Case, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("listing cases: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("listing cases: no *.jsonl file in %s", dir)
	}
	slices.Sort(files)
	var all []Case
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading cases: %w", err)
		}
		cases, err := parse(body)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		all = append(all, cases...)
	}
	return all, nil
}

func parse(body []byte) ([]Case, error) {
	var all []Case
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 4<<20)
	for n := 1; lines.Scan(); n++ {
		var head struct {
			Area    string `json:"area"`
			Request struct {
				RPC string `json:"rpc"`
				K8s string `json:"k8s"`
			} `json:"request"`
		}
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if err := json.Unmarshal(lines.Bytes(), &head); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		area, _, _ := strings.Cut(head.Area, ".")
		if area != "destination" && area != "policy" {
			continue
		}
		var c Case
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		all = append(all, c)
	}
	return all, lines.Err()
}

// later names, for a kind of object that no table carries yet, the issue that
// brings it. A case that needs one is run and reported, but its failure is not
// a failure of the run.
var later = map[string]string{}

// Needs tells why a case is outside the present scope; empty when it is inside.
func (c Case) Needs() string {
	objects := slices.Clone(c.Given)
	for _, s := range c.Request.Then {
		objects = append(objects, s.Object)
	}
	for _, o := range objects {
		var head struct {
			Kind string `json:"kind"`
		}
		if len(o) == 0 || json.Unmarshal(o, &head) != nil {
			continue
		}
		if issue, ok := later[head.Kind]; ok {
			return head.Kind + " (issue " + issue + ")"
		}
	}
	return ""
}
