package show

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weftmesh/weft/bus"
)

// Text is the status as a table, with what needs explaining below it.
func Text(s Status) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tINSTANCE\tVERSION\tEPOCH/SEQ\tLAG\tSTATE\tAGE")
	led := false
	for _, p := range s.Processes {
		service := p.Service
		if p.Leader && p.present() {
			service += " *"
			led = true
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", service, dash(p.Instance), dash(p.Version),
			position(p), lag(p), describe(p), span(p.AgeMs))
	}
	_ = w.Flush() // a strings.Builder takes everything
	if led {
		b.WriteString("* leads: it writes the log\n")
	}
	if len(s.Links) > 0 {
		b.WriteByte('\n')
		b.WriteString(linkTable(s.Links))
	}
	if s.SkippedTotal > 0 {
		b.WriteByte('\n')
		b.WriteString(skipped(s))
	}
	if s.Unmeshed > 0 {
		b.WriteByte('\n')
		b.WriteString(unmeshed(s.Unmeshed))
	}
	if s.History != nil {
		b.WriteByte('\n')
		b.WriteString(past(*s.History))
	}
	for i, n := range s.Notes {
		if i == 0 {
			b.WriteByte('\n')
		}
		b.WriteString(n + "\n")
	}
	return b.String()
}

// JSON is the status for programs.
func JSON(s Status) (string, error) {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return "", fmt.Errorf("writing the status: %w", err)
	}
	return string(text) + "\n", nil
}

// skipped lists the objects that the mesh does without.
func skipped(s Status) string {
	var b strings.Builder
	if s.SkippedTotal == 1 {
		b.WriteString("1 object is skipped, because the watcher cannot use it as it is:\n")
	} else {
		fmt.Fprintf(&b, "%d objects are skipped, because the watcher cannot use them as they are:\n", s.SkippedTotal)
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, o := range s.Skipped {
		fmt.Fprintf(w, "  %s\t%s\n", o.Object, o.Reason)
	}
	_ = w.Flush() // a strings.Builder takes everything
	if more := int(s.SkippedTotal) - len(s.Skipped); more > 0 {
		fmt.Fprintf(&b, "  and %d more; the watcher's log names each\n", more)
	}
	return b.String()
}

// unmeshed says how many pods lack the proxy that they were to have, and how to
// find them: a bus that names pods of every namespace would tell too much.
func unmeshed(n uint32) string {
	pods := "1 pod has no proxy, though it was to have one"
	if n > 1 {
		pods = fmt.Sprintf("%d pods have no proxy, though they were to have one", n)
	}
	return pods + "; which and why:\n  kubectl get events -A --field-selector reason=InjectionSkipped\n"
}

// past says how the history is kept.
func past(h History) string {
	text := "history is NOT kept"
	if h.Kept {
		text = fmt.Sprintf("history is kept, %d bytes", h.Bytes)
		if h.Since != nil {
			text += " since " + h.Since.Format(time.RFC3339)
		}
	}
	if h.Lost > 0 {
		text += fmt.Sprintf("; %d messages of the log are missing in it", h.Lost)
	}
	if h.Problem != "" {
		text += ": " + h.Problem + "\n  the mesh does without it; weft history tells a gap"
	}
	return text + "\n"
}

// position is how far a process has read; one that reads no log has none.
func position(p Process) string {
	if p.Epoch == 0 {
		return "-"
	}
	return strconv.FormatUint(p.Epoch, 10) + "/" + strconv.FormatUint(p.Seq, 10)
}

func lag(p Process) string {
	if p.LagMs == 0 {
		return "-"
	}
	d := time.Duration(p.LagMs * float64(time.Millisecond))
	if d < time.Second {
		return strconv.FormatFloat(float64(d.Round(100*time.Microsecond))/float64(time.Millisecond), 'f', -1, 64) + "ms"
	}
	if d < time.Minute {
		return strconv.FormatFloat(float64(d.Round(100*time.Millisecond))/float64(time.Second), 'f', -1, 64) + "s"
	}
	return short(d)
}

// describe is the state with what one wants to know of it.
func describe(p Process) string {
	switch {
	case p.State == bus.Silent:
		return "silent for " + span(p.HeardMs)
	case p.State == bus.Stale && p.StaleMs > 0:
		return "stale for " + span(p.StaleMs)
	case p.State == bus.Live && !p.Ready:
		return "live, not ready"
	}
	return string(p.State)
}

func span(ms int64) string { return short(time.Duration(ms) * time.Millisecond) }

// short is a duration in at most two units: 2d3h, 4h5m, 6m7s, 8s.
func short(d time.Duration) string {
	const day = 24 * time.Hour
	units := []struct {
		size time.Duration
		name string
	}{{day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		text := strconv.FormatInt(int64(d/u.size), 10) + u.name
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				text += strconv.FormatInt(int64(rest), 10) + units[i+1].name
			}
		}
		return text
	}
	return "0s"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
