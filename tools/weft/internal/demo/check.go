package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/say"
)

// Check runs the demo for a few seconds and returns nil only if traffic
// flowed with mTLS on every hop, the deny rule denied and its removal allowed
// again, a killed destination replica cost no request, and no request failed
// that should not have.
func Check(ctx context.Context, o Options) error {
	m, err := begin(ctx, o)
	defer m.stop()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		run  func(context.Context, Options) error
	}{
		{"traffic flows", m.checkFlow},
		{"every hop has mTLS and a peer identity", m.checkSecure},
		{"a change goes from watcher to stream in one trace", m.checkTrace},
		{"an AuthorizationPolicy denies the load generator", m.checkDeny},
		{"without it the load generator is allowed again", m.checkAllow},
		{"the history tells when that was, and by which trace", m.checkPast},
		{"a killed destination replica costs no request", m.checkKill},
		{"no request failed that should not have", m.checkNone},
	} {
		began := time.Now()
		if err := step.run(ctx, o); err != nil {
			_, _ = fmt.Fprintf(o.Out, "FAIL  %s\n", step.what)
			return &say.Problem{Code: 1, Err: err, What: "the check failed: " + step.what, Why: err.Error(), Next: "read the logs in " + m.logs()}
		}
		_, _ = fmt.Fprintf(o.Out, "ok    %-52s %5.1fs\n", step.what, time.Since(began).Seconds())
	}
	return nil
}

// until polls the load generator's counts until done is true.
func (m *mesh) until(ctx context.Context, what string, done func(seen) bool) error {
	var last seen
	var failed error
	over, err := poll(ctx, 50*time.Millisecond, 20*time.Second, func() bool {
		last, failed = m.seen(ctx)
		return failed == nil && done(last)
	})
	if over {
		return fmt.Errorf("waited 20s until %s: %+v %w", what, last, failed)
	}
	return err
}

func (m *mesh) checkFlow(ctx context.Context, _ Options) error {
	return m.until(ctx, "40 requests went well and one failed on purpose", func(s seen) bool { return s.OK >= 40 && s.OnPurpose >= 1 })
}

// checkSecure looks at the server side of every hop; the load generator has no client.
func (m *mesh) checkSecure(ctx context.Context, o Options) error {
	var rows []row
	for _, w := range m.workloads {
		now, err := m.sample(ctx, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.pod.Name, err)
		}
		rows = append(rows, between(w.pod.Name, sample{at: now.at.Add(-time.Second)}, now))
		switch {
		case w.isLoad():
		case now.open > 0:
			return fmt.Errorf("%s took %.0f requests or connections without mTLS", w.pod.Name, now.open)
		case now.secure == 0:
			return fmt.Errorf("%s took no traffic", w.pod.Name)
		case len(now.peers) == 0:
			return fmt.Errorf("%s does not know its clients' identities", w.pod.Name)
		}
	}
	_, _ = fmt.Fprintln(o.Out, table(rows))
	return nil
}

func (m *mesh) checkDeny(ctx context.Context, o Options) error {
	body, err := os.ReadFile(filepath.Join(o.Manifests, "try", "deny-load.yaml"))
	if err != nil {
		return err
	}
	if err := replace(m.denyFile(), body); err != nil {
		return err
	}
	if err := m.until(ctx, "the load generator is denied", func(s seen) bool { return s.Denied >= 10 }); err != nil {
		return err
	}
	before, err := m.seen(ctx)
	if err != nil {
		return err
	}
	err = m.until(ctx, "ten more are denied", func(s seen) bool { return s.Denied >= before.Denied+10 })
	if now, _ := m.seen(ctx); err == nil && now.OK+now.OnPurpose > before.OK+before.OnPurpose {
		return fmt.Errorf("%d requests were allowed while denied", now.OK+now.OnPurpose-before.OK-before.OnPurpose)
	}
	return err
}

func (m *mesh) checkAllow(ctx context.Context, _ Options) error {
	before, err := m.seen(ctx)
	if err != nil {
		return err
	}
	if err := os.Remove(m.denyFile()); err != nil {
		return err
	}
	return m.until(ctx, "twenty more requests went well", func(s seen) bool { return s.OK >= before.OK+20 })
}

func (m *mesh) checkKill(ctx context.Context, _ Options) error {
	before, err := m.seen(ctx)
	if err != nil {
		return err
	}
	for _, c := range m.control {
		if c.Spec.Name == "destination-1" {
			c.Kill()
		}
	}
	return m.until(ctx, "forty more requests went well", func(s seen) bool { return s.OK >= before.OK+40 })
}

func (m *mesh) checkNone(ctx context.Context, _ Options) error {
	now, err := m.seen(ctx)
	switch {
	case err != nil:
		return err
	case now.Failed > 0:
		return fmt.Errorf("%d failed, the last with %s", now.Failed, strings.TrimSpace(now.LastError))
	case now.Late > 0:
		return fmt.Errorf("%d could not start, since 64 were on their way", now.Late)
	}
	return nil
}

// checkTrace makes a change that no request feels, a label that addresses carry, and
// wants its spans joined from the watcher to a front-end's stream.
func (m *mesh) checkTrace(ctx context.Context, o Options) error {
	path := filepath.Join(m.shop(), "pod-books-1.yaml")
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed := strings.Replace(string(body), "  labels:\n", "  labels:\n    pod-template-hash: traced\n", 1)
	if changed == string(body) {
		return errors.New("the pod's manifest has no labels to change")
	}
	if err := replace(path, []byte(changed)); err != nil {
		return err
	}
	over, err := poll(ctx, 100*time.Millisecond, 15*time.Second, func() bool { return m.spans.Latest("watcher", "destination") != nil })
	if over {
		return errors.New("no trace has spans of both the watcher and a destination after 15s")
	}
	return err
}
