// Package chain puts the plugin on a node and keeps it there: its binary, its
// kubeconfig, and its entry at the end of the node's CNI configurations, which
// belong to others who rewrite them as they please.
//
// A configuration is always replaced whole, by a rename: whoever reads it, and
// whenever this process dies, it is either the old one or the new one.
package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Type is the plugin's name in configurations and in the directory of binaries.
const Type = "linkerd-cni"

// origin marks a list that was made of a single configuration, and names it.
// Readers of lists ignore keys that they don't know.
const origin = "weftMadeFrom"

// list is a configuration list, whatever else it holds.
type list map[string]json.RawMessage

var errNotOurs = errors.New("it is no CNI configuration")

// parse reads a list, or makes one of a single configuration (from is its file's
// name then, else "").
func parse(content []byte, single bool, from string) (list, []json.RawMessage, error) {
	var l list
	if err := json.Unmarshal(content, &l); err != nil {
		return nil, nil, fmt.Errorf("it cannot be read (%w)", err)
	}
	if raw, ok := l["plugins"]; ok {
		var plugins []json.RawMessage
		if err := json.Unmarshal(raw, &plugins); err != nil || len(plugins) == 0 {
			return nil, nil, fmt.Errorf("%w: it lists no plugins", errNotOurs)
		}
		if slices.ContainsFunc(plugins, func(p json.RawMessage) bool { return kind(p) == "" }) {
			return nil, nil, fmt.Errorf("%w: one of its plugins has no type", errNotOurs)
		}
		if single {
			l[origin] = quote(from)
		}
		return l, plugins, nil
	}
	if kind(content) == "" {
		return nil, nil, fmt.Errorf("%w: it names no plugin", errNotOurs)
	}
	if !single {
		return nil, nil, fmt.Errorf("%w list: it lists no plugins", errNotOurs)
	}
	made := list{origin: quote(from)}
	for _, key := range []string{"cniVersion", "name"} {
		if v, ok := l[key]; ok {
			made[key] = v
			delete(l, key)
		}
	}
	rest, err := json.Marshal(l)
	return made, []json.RawMessage{rest}, err
}

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string
	return b
}

// kind is the type of a plugin's entry, "" if it has none.
func kind(entry []byte) string {
	var e struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(entry, &e) // then it has none
	return e.Type
}

func isOurs(entry json.RawMessage) bool { return kind(entry) == Type }

// add returns the configuration with entry at the end of its plugins, as a list,
// and whether that is a change. A list that has the entry already is left as it
// is, wherever the entry stands; an older entry of ours is replaced where it is.
func add(content []byte, single bool, from string, entry json.RawMessage) (out []byte, changed bool, err error) {
	l, plugins, err := parse(content, single, from)
	if err != nil {
		return nil, false, err
	}
	if !slices.ContainsFunc(plugins, func(p json.RawMessage) bool { return !isOurs(p) }) {
		return nil, false, fmt.Errorf("%w to chain to: it has no plugin but ours", errNotOurs)
	}
	at := slices.IndexFunc(plugins, isOurs)
	switch {
	case at >= 0 && !single && same(plugins[at], entry) && !slices.ContainsFunc(plugins[at+1:], isOurs):
		return content, false, nil
	case at >= 0:
		plugins[at] = entry
		after := slices.DeleteFunc(plugins[at+1:], isOurs) // twice is once too often
		plugins = append(plugins[:at+1], after...)
	default:
		plugins = append(plugins, entry)
	}
	out, err = l.with(plugins)
	return out, true, err
}

// remove returns the list without our entries and whether that is a change. If
// the list was made of a single configuration, file is that one's name and out
// its content.
func remove(content []byte) (out []byte, file string, changed bool, err error) {
	l, plugins, err := parse(content, false, "")
	if err != nil {
		return nil, "", false, err
	}
	rest := slices.DeleteFunc(slices.Clone(plugins), isOurs)
	if len(rest) == len(plugins) {
		return content, "", false, nil
	}
	_ = json.Unmarshal(l[origin], &file) // then it was a list from the start
	delete(l, origin)
	if file == "" || len(rest) != 1 {
		out, err = l.with(rest)
		return out, "", true, err
	}
	var one list
	if err := json.Unmarshal(rest[0], &one); err != nil {
		return nil, "", false, fmt.Errorf("%w: %w", errNotOurs, err)
	}
	for _, key := range []string{"cniVersion", "name"} {
		if v, ok := l[key]; ok {
			one[key] = v
		}
	}
	out, err = indent(one)
	return out, file, true, err
}

func (l list) with(plugins []json.RawMessage) ([]byte, error) {
	raw, err := json.Marshal(plugins)
	if err != nil {
		return nil, err
	}
	l["plugins"] = raw
	return indent(l)
}

func indent(l list) ([]byte, error) {
	b, err := json.MarshalIndent(l, "", "  ")
	return append(b, '\n'), err
}

// same compares two entries by what they mean.
func same(a, b json.RawMessage) bool {
	canon := func(r json.RawMessage) []byte {
		d := json.NewDecoder(bytes.NewReader(r))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return nil
		}
		out, _ := json.Marshal(v) // it was JSON before
		return out
	}
	x := canon(a)
	return x != nil && bytes.Equal(x, canon(b))
}
