package whatif

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
)

// report is what came out.
type report struct {
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
	// Flows that were judged, and how many of them change.
	Judged  int      `json:"judged"`
	Changes int      `json:"changes"`
	Rows    []row    `json:"flows"`
	Notes   []string `json:"notes,omitempty"`
}

// row is a flow, or several of one workload's pods that fare alike.
type row struct {
	Flow
	Pods    int     `json:"pods"`
	Changes bool    `json:"changes"`
	Before  verdict `json:"before"`
	After   verdict `json:"after"`
}

type verdict struct {
	Outcome string `json:"outcome"`
	By      string `json:"by,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// summarise joins the pods of a workload that fare alike. all keeps also what does
// not change.
func summarise(flows []Flow, resp *explainv1.CheckResponse, all bool) report {
	r := report{Epoch: resp.GetEpoch(), Seq: resp.GetSeq(), Judged: len(flows), Notes: resp.GetNotes(), Rows: []row{}}
	at := map[string]int{}
	for i, f := range flows {
		v := resp.GetVerdicts()[i]
		if v.GetChanges() {
			r.Changes++
		}
		if !v.GetChanges() && !all {
			continue
		}
		one := row{Flow: f, Pods: 1, Changes: v.GetChanges(), Before: verdictOf(v.GetBefore()), After: verdictOf(v.GetAfter())}
		alike := f
		alike.Count = 0
		if f.Workload != "" && f.To != "" {
			alike.To = f.Workload
		} else if f.Workload != "" {
			alike.From = f.Workload
		}
		key := fmt.Sprint(alike, one.Before, one.After)
		if j, ok := at[key]; ok && f.Workload != "" {
			r.Rows[j].Pods++
			r.Rows[j].Count += f.Count
			continue
		}
		at[key] = len(r.Rows)
		r.Rows = append(r.Rows, one)
	}
	return r
}

func verdictOf(j *explainv1.Judgement) verdict {
	return verdict{j.GetOutcome(), j.GetBy(), j.GetReason()}
}

func (r report) write(w io.Writer, format string) error {
	var out bytes.Buffer
	if format == "json" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the answer: %w", err)
		}
		out.Write(append(text, '\n'))
	} else if err := r.table(&out); err != nil {
		return err
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

func (r report) table(out *bytes.Buffer) error {
	if len(r.Rows) > 0 {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "FLOW\tREQUEST\tSEEN\tBEFORE\tAFTER\tRULE")
		for _, one := range r.Rows {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\n",
				plain.Line(one.who()), plain.Line(one.what()), one.Count, plain.Line(one.Before.Outcome), plain.Line(one.After.Outcome), plain.Line(one.rule()))
		}
		if err := table.Flush(); err != nil {
			return fmt.Errorf("laying out the table: %w", err)
		}
		out.WriteByte('\n')
	}
	for _, n := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", plain.Line(n))
	}
	fmt.Fprintf(out, "%d of %d flows would change, as of epoch %d, sequence %d of the log\n", r.Changes, r.Judged, r.Epoch, r.Seq)
	return nil
}

// who is client and server of a flow.
func (r row) who() string {
	name := cmp.Or(r.To, r.From)
	if r.Pods > 1 {
		name = fmt.Sprintf("%s (%d pods)", r.Workload, r.Pods)
	}
	if r.From != "" {
		return name + " -> " + r.Target
	}
	client := r.Client
	switch {
	case client != "" || r.Address == "":
		client = cmp.Or(client, "somebody")
	default:
		client = r.Address
	}
	if r.TLS {
		client += " over TLS"
	}
	return fmt.Sprintf("%s -> %s port %d", client, name, r.Port)
}

func (r row) what() string {
	if r.Path != "" {
		return r.Method + " " + r.Host + r.Path
	}
	return cmp.Or(r.Route, "-")
}

// rule is who is responsible: of a change what it was and what it will be.
func (r row) rule() string {
	say := func(v verdict) string {
		if v.Outcome == "allowed" || v.Reason == "" {
			return v.By
		}
		return strings.TrimPrefix(v.By+": "+v.Reason, ": ")
	}
	before, after := say(r.Before), say(r.After)
	if before == after {
		return before
	}
	return before + " => " + after
}
