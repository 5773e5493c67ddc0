package caseset

import (
	"maps"
	"slices"
)

// State is what a client holds after a run of messages: for Get the live set
// by address, for the other calls the last message.
type State struct {
	Live map[string]any
	Last Message
	// Status is the code that ended the stream; empty while it is open.
	Status string
}

// Fold applies messages to a state and returns the new one.
func Fold(from State, messages []Message) State {
	to := State{Live: map[string]any{}, Last: from.Last, Status: from.Status}
	maps.Copy(to.Live, from.Live)
	for _, m := range messages {
		if code, ok := m["status"].(string); ok {
			to.Status = code
			continue
		}
		if m["stream_end"] == true {
			to.Status = "OK"
			continue
		}
		if m["status_any_error"] == true {
			to.Status = "any"
			continue
		}
		if _, quiet := m["quiet_ms"]; quiet {
			continue
		}
		added, isAdd := m["add"].([]any)
		removed, isRemove := m["remove"].([]any)
		for _, a := range added {
			addr, _ := a.(map[string]any)
			name, _ := addr["a"].(string)
			to.Live[name] = withSet(addr, m["set_labels"])
		}
		for _, a := range removed {
			name, _ := a.(string)
			delete(to.Live, name)
		}
		if !isAdd && !isRemove {
			to.Last = m
		}
	}
	return to
}

// withSet keeps the set's labels beside each address, as a proxy does.
func withSet(addr map[string]any, labels any) map[string]any {
	if labels == nil {
		return addr
	}
	out := map[string]any{"set_labels": labels}
	maps.Copy(out, addr)
	return out
}

// Judge compares the state a client should hold with the one it holds.
func Judge(want, got State) string {
	switch {
	case want.Status == "any" && got.Status != "" && got.Status != "OK":
		return ""
	case want.Status != got.Status:
		return "status: want " + orOpen(want.Status) + ", got " + orOpen(got.Status)
	case want.Status != "" && want.Status != "OK":
		return ""
	}
	for _, a := range Addresses(want) {
		if got.Live[a] == nil {
			return "live set lacks " + a + ", it is " + show(got.Live)
		}
		if d := differ(a, want.Live[a], got.Live[a]); d != "" {
			return d
		}
	}
	for a := range got.Live {
		if want.Live[a] == nil {
			return "live set has " + a + " too"
		}
	}
	last := want.Last
	if live, ok := last["live"].(map[string]any); ok {
		last = live
	}
	if last == nil || last["observe"] != nil {
		return ""
	}
	return Differ(map[string]any(last), Plain(got.Last))
}

func orOpen(status string) string {
	if status == "" {
		return "an open stream"
	}
	return status
}

// Exact says whether the messages came one for one as written.
func Exact(want, got []Message) bool {
	var said []Message
	for _, m := range want {
		if _, quiet := m["quiet_ms"]; !quiet {
			said = append(said, m)
		}
	}
	return slices.EqualFunc(said, got, func(want, got Message) bool {
		return Differ(map[string]any(want), Plain(got)) == ""
	})
}

// Quiet returns how long nothing may come after the messages, in milliseconds.
func Quiet(want []Message) int {
	for _, m := range want {
		if ms, ok := m["quiet_ms"].(float64); ok {
			return int(ms)
		}
	}
	return 0
}

// Addresses lists the live set in order.
func Addresses(s State) []string {
	names := make([]string, 0, len(s.Live))
	for a := range s.Live {
		names = append(names, a)
	}
	slices.Sort(names)
	return names
}
