// Package caseset reads files of black-box cases (shared/cases/README.md),
// turns the proxy API's messages into their vocabulary, and judges answers.
// It is pure but for Load; the processes are started by package cases.
package caseset

import (
	"encoding/json"
	"fmt"
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
	all, err := load[Case](dir, func(h head) bool { return h.of("destination") || h.of("policy") })
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("listing cases: none in the *.jsonl files of %s", dir)
	}
	return all, err
}
