package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options say how the demo runs.
type Options struct {
	Bin       string // directory of the binaries
	Dir       string // directory of the run, made and cleared by it
	Manifests string // deploy/demo
	Cwd       string // where the person is, for hints
	Base      int    // the first of 50 ports
	Every     time.Duration
	Out       io.Writer
	Screen    bool // Out is a terminal: draw in place
}

// Run shows the live table until ctx ends.
func Run(ctx context.Context, o Options) error {
	m, err := begin(ctx, o)
	defer func() {
		m.stop()
		_, _ = fmt.Fprintln(o.Out, "stopped")
	}()
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	old := map[string]sample{}
	tick := time.NewTicker(o.Every)
	defer tick.Stop()
	for {
		var rows []row
		for _, w := range m.workloads {
			if _, err := os.Stat(w.published); err != nil {
				rows = append(rows, row{name: w.pod.Name, state: "removed"})
				continue
			}
			now, err := m.sample(ctx, w)
			if err != nil {
				rows = append(rows, row{name: w.pod.Name, state: "no answer"})
				continue
			}
			if before, ok := old[w.pod.Name]; ok {
				rows = append(rows, between(w.pod.Name, before, now))
			}
			old[w.pod.Name] = now
		}
		if len(rows) > 0 {
			m.draw(ctx, o, rows)
		}
		select {
		case <-ctx.Done():
			_, _ = fmt.Fprintln(o.Out, "\nstopping")
			return nil
		case <-tick.C:
		}
	}
}

// begin starts the mesh; the caller stops it, also after an error.
func begin(ctx context.Context, o Options) (*mesh, error) {
	m := &mesh{layout: layout{bin: o.Bin, root: o.Dir, base: o.Base, from: o.Manifests, cwd: o.Cwd, weft: os.Args[0]}}
	began := time.Now()
	step := func(what string) { _, _ = fmt.Fprintf(o.Out, "%6.1fs  %s\n", time.Since(began).Seconds(), what) }
	if err := m.start(ctx, step); err != nil {
		return m, err
	}
	step("the mesh is up")
	return m, changes(ctx, m.layout, m.addr(portDestination1), m.tell)
}

func (m *mesh) sample(ctx context.Context, w workload) (sample, error) {
	body, err := page(ctx, "http://"+w.admin()+"/metrics")
	if err != nil {
		return sample{}, err
	}
	return read(bytes.NewReader(body), time.Now())
}

// seen is what the load generator counts.
type seen struct {
	OK        int64  `json:"ok"`
	OnPurpose int64  `json:"on_purpose"`
	Denied    int64  `json:"denied"`
	Failed    int64  `json:"failed"`
	Late      int64  `json:"late"`
	LastError string `json:"last_error"`
}

func (m *mesh) seen(ctx context.Context) (seen, error) {
	for _, w := range m.workloads {
		if !w.isLoad() {
			continue
		}
		body, err := page(ctx, "http://"+w.port()+"/")
		if err != nil {
			return seen{}, fmt.Errorf("asking the load generator: %w", err)
		}
		out := seen{}
		if err := json.Unmarshal(body, &out); err != nil {
			return seen{}, fmt.Errorf("asking the load generator: %w", err)
		}
		return out, nil
	}
	return seen{}, fmt.Errorf("asking the load generator: there is none")
}

func (m *mesh) draw(ctx context.Context, o Options, rows []row) {
	var b strings.Builder
	if o.Screen {
		b.WriteString("\x1b[H\x1b[2J") // home, clear
	}
	b.WriteString("weft demo, " + time.Now().Format(time.TimeOnly) + "; what each proxy takes in, the last " + o.Every.String() + "; logs in " + m.here(m.logs()) + "\n")
	b.WriteString(table(rows))
	if s, err := m.seen(ctx); err == nil {
		fmt.Fprintf(&b, "\nload: %d ok, %d failed on purpose, %d denied, %d failed", s.OK, s.OnPurpose, s.Denied, s.Failed)
		if s.LastError != "" {
			b.WriteString(" (last: " + strings.TrimSpace(s.LastError) + ")")
		}
		b.WriteString("\n")
	}
	for _, e := range m.said() {
		b.WriteString("\n  " + e)
	}
	if o.Screen || !m.hinted {
		b.WriteString("\n\n" + hints(m.layout, m.pid("destination-2")))
		m.hinted = true
	} else {
		b.WriteString("\n\n")
	}
	_, _ = io.WriteString(o.Out, b.String())
}

func (m *mesh) pid(name string) int {
	for _, c := range m.control {
		if c.Spec.Name == name {
			return c.PID()
		}
	}
	return 0
}

// deny is the policy that the check applies and takes back.
func (m *mesh) denyFile() string { return filepath.Join(m.shop(), "deny-load.yaml") }
