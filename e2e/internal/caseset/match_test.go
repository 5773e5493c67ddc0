package caseset

import (
	"encoding/json"
	"testing"
)

func TestDiffer(t *testing.T) {
	for _, c := range []struct {
		name, want, got string
		same            bool
	}{
		{"subset", `{"a":1}`, `{"a":1,"b":2}`, true},
		{"other value", `{"a":1}`, `{"a":2}`, false},
		{"absent", `{"a":1}`, `{}`, false},
		{"null is unset", `{"a":null}`, `{}`, true},
		{"null is not a value", `{"a":null}`, `{"a":1}`, false},
		{"empty text is unset", `{"a":""}`, `{}`, true},
		{"empty map is unset", `{"a":{}}`, `{}`, true},
		{"empty map is a subset", `{"a":{}}`, `{"a":{"b":1}}`, true},
		{"labels that must not be there", `{"labels_absent":["pod"]}`, `{"labels":{"pod":"p"}}`, false},
		{"and are not", `{"labels_absent":["pod"]}`, `{"labels":{"zone":"z"}}`, true},
		{"any default", `{"meta":{"default":true}}`, `{"meta":{"default":"http"}}`, true},
		{"no default", `{"meta":{"default":true}}`, `{"meta":{"kind":"Service"}}`, false},
		{"order of networks", `{"networks":["a","b"]}`, `{"networks":["b","a"]}`, true},
		{"order of routes", `{"routes":["a","b"]}`, `{"routes":["b","a"]}`, false},
		{"a list too long", `{"networks":["a"]}`, `{"networks":["a","b"]}`, false},
		{"one for two", `{"networks":["a","a"]}`, `{"networks":["a","b"]}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want, got any
			if err := json.Unmarshal([]byte(c.want), &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(c.got), &got); err != nil {
				t.Fatal(err)
			}
			if d := Differ(want, got); (d == "") != c.same {
				t.Errorf("Differ(%s, %s) = %q, want the same: %v", c.want, c.got, d, c.same)
			}
		})
	}
}

func TestJudgeFoldsToTheSameState(t *testing.T) {
	a := func(addr string) Message { return Message{"add": []any{map[string]any{"a": addr}}} }
	gone := func(addr string) Message { return Message{"remove": []any{addr}} }
	want := []Message{a("1"), a("2"), gone("1"), {"quiet_ms": 1.0}}
	split := []Message{a("2")}
	if d := Judge(Fold(State{}, want), Fold(State{}, split)); d != "" {
		t.Errorf("the same live set was judged different: %s", d)
	}
	if Exact(want, split) {
		t.Error("other messages were called exact")
	}
	if !Exact(want, []Message{a("1"), a("2"), gone("1")}) {
		t.Error("the very messages were not called exact")
	}
	if Judge(Fold(State{}, want), Fold(State{}, append(split, a("3")))) == "" {
		t.Error("an address too many was not noticed")
	}
	if Judge(Fold(State{}, []Message{{"status": "NotFound"}}), Fold(State{}, []Message{{"status": "Unknown"}})) == "" {
		t.Error("another status was not noticed")
	}
	if d := Judge(Fold(State{}, []Message{{"status_any_error": true}}), Fold(State{}, []Message{{"status": "Unknown"}})); d != "" {
		t.Errorf("any error was asked for: %s", d)
	}
}
