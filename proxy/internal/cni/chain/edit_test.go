package chain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ours = `{"type":"linkerd-cni","linkerd":{"proxy-uid":2102}}`

// canonical is JSON without its looks.
func canonical(t *testing.T, s string) string {
	t.Helper()
	var l map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &l); err != nil {
		t.Fatalf("no JSON object: %q", s)
	}
	b, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAdd(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		single   bool
		want     string // "" is no change
	}{
		{
			name: "to a list", in: `{"cniVersion":"0.3.1","name":"n","disableCheck":true,"plugins":[{"type":"bridge","mtu":9007199254740993},{"type":"portmap"}]}`,
			want: `{"cniVersion":"0.3.1","name":"n","disableCheck":true,"plugins":[{"type":"bridge","mtu":9007199254740993},{"type":"portmap"},` + ours + `]}`,
		},
		{name: "again", in: `{"name":"n","plugins":[{"type":"bridge"},{"linkerd":{"proxy-uid" : 2102}, "type":"linkerd-cni"}]}`},
		{name: "again, before another's", in: `{"name":"n","plugins":[{"type":"bridge"},` + ours + `,{"type":"istio-cni"}]}`},
		{
			name: "with new settings", in: `{"name":"n","plugins":[{"type":"bridge"},{"type":"linkerd-cni"},{"type":"istio-cni"}]}`,
			want: `{"name":"n","plugins":[{"type":"bridge"},` + ours + `,{"type":"istio-cni"}]}`,
		},
		{
			name: "twice is once too often", in: `{"name":"n","plugins":[` + ours + `,{"type":"bridge"},` + ours + `,{"type":"linkerd-cni"}]}`,
			want: `{"name":"n","plugins":[` + ours + `,{"type":"bridge"}]}`,
		},
		{
			name: "to a single configuration", single: true, in: `{"cniVersion":"0.4.0","name":"n","type":"bridge","ipam":{"type":"host-local"}}`,
			want: `{"cniVersion":"0.4.0","name":"n","plugins":[{"ipam":{"type":"host-local"},"type":"bridge"},` + ours + `],"weftMadeFrom":"10-x.conf"}`,
		},
		{
			name: "to a list in a single one's file", single: true, in: `{"name":"n","plugins":[{"type":"bridge"}]}`,
			want: `{"name":"n","plugins":[{"type":"bridge"},` + ours + `],"weftMadeFrom":"10-x.conf"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, changed, err := add([]byte(tt.in), tt.single, "10-x.conf", json.RawMessage(ours))
			if err != nil || changed != (tt.want != "") {
				t.Fatalf("add() = %s, %v, %v", out, changed, err)
			}
			if tt.want == "" {
				tt.want = tt.in
			}
			if diff := cmp.Diff(canonical(t, tt.want), canonical(t, string(out))); diff != "" {
				t.Errorf("add() (-want +got):\n%s", diff)
			}
			if again, changed, err := add(out, false, "10-x.conflist", json.RawMessage(ours)); changed || err != nil || string(again) != string(out) {
				t.Errorf("a second add() changed it: %v, %v", changed, err)
			}
		})
	}
}

func TestAddRefuses(t *testing.T) {
	for in, single := range map[string]bool{
		"": false, "{": false, "null": false, "[]": false, `{"plugins":[]}`: false, `{"plugins":{}}`: false, `{"type":"bridge"}`: false,
		`{"name":"n"}`: true, `{"type":7}`: true, `{"plugins":[` + ours + `]}`: false, ours: true, `{"plugins":null}`: true,
	} {
		if out, _, err := add([]byte(in), single, "x", json.RawMessage(ours)); err == nil {
			t.Errorf("add(%s) = %s, want an error", in, out)
		}
	}
}

func TestRemove(t *testing.T) {
	for _, tt := range []struct{ name, in, want, file string }{
		{"from a list", `{"name":"n","plugins":[{"type":"a"},` + ours + `,{"type":"b"}]}`, `{"name":"n","plugins":[{"type":"a"},{"type":"b"}]}`, ""},
		{
			"what was made a list", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a","x":1},` + ours + `],"weftMadeFrom":"10-x.conf"}`,
			`{"cniVersion":"1.0.0","name":"n","type":"a","x":1}`, "10-x.conf",
		},
		{
			"what others have added to since", `{"name":"n","plugins":[{"type":"a"},` + ours + `,{"type":"b"}],"weftMadeFrom":"10-x.conf"}`,
			`{"name":"n","plugins":[{"type":"a"},{"type":"b"}]}`, "10-x.conf",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, file, changed, err := remove([]byte(tt.in))
			if strings.HasPrefix(tt.name, "what others") {
				tt.file = ""
			}
			if err != nil || !changed || file != tt.file {
				t.Fatalf("remove() = %s, %q, %v, %v", out, file, changed, err)
			}
			if diff := cmp.Diff(canonical(t, tt.want), canonical(t, string(out))); diff != "" {
				t.Errorf("remove() (-want +got):\n%s", diff)
			}
		})
	}
	if out, _, changed, err := remove([]byte(`{"plugins":[{"type":"a"}]}`)); changed || err != nil {
		t.Errorf("remove() of nothing = %s, %v, %v", out, changed, err)
	}
}

// FuzzEdit: whatever a file holds, adding is refused or makes a list that keeps
// the others' plugins, and removing brings those back.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"0.4.0","name":"n","type":"bridge"}`), true)
	f.Add([]byte(`{"name":"n","plugins":[{"type":"a"},{"type":"linkerd-cni"}],"weftMadeFrom":["x"]}`), false)
	f.Fuzz(func(t *testing.T, in []byte, single bool) {
		out, _, err := add(in, single, "10-x.conf", json.RawMessage(ours))
		if err != nil {
			return
		}
		_, before, err := parse(in, single, "")
		if err != nil {
			t.Fatalf("parse(%s) = %v", in, err)
		}
		_, after, err := parse(out, false, "")
		if err != nil {
			t.Fatalf("add(%s) = %s, which cannot be read: %v", in, out, err)
		}
		others := func(plugins []json.RawMessage) (out []json.RawMessage) {
			for _, p := range plugins {
				if !isOurs(p) {
					out = append(out, p)
				}
			}
			return out
		}
		x, y := others(before), others(after)
		if len(x) != len(y) || len(y) == len(after) {
			t.Fatalf("add(%s) = %s", in, out)
		}
		if _, _, changed, err := remove(out); !changed || err != nil {
			t.Errorf("remove(%s) = %v, %v", out, changed, err)
		}
	})
}
