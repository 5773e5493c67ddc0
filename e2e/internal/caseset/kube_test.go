package caseset

import (
	"encoding/json"
	"testing"
)

// The judge must find what is wrong with a status.
func TestJudgeStatusFinds(t *testing.T) {
	var got map[string]any
	if err := json.Unmarshal([]byte(`{"parents":[
		{"parentRef":{"kind":"Service","name":"plum","port":80},"controllerName":"a","conditions":[{"type":"Accepted","status":"True"},{"type":"ResolvedRefs","status":"False"}]},
		{"parentRef":{"kind":"Gateway","name":"front"},"controllerName":"b","conditions":[]}],
		"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"}]}`), &got); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		ok   bool
	}{
		{`{"conditions":[{"type":"Accepted","status":"True"}]}`, true},
		{`{"conditions":[{"type":"Accepted","status":"False"}]}`, false},
		{`{"conditions":[{"type":"Conflicted"}]}`, false},
		{`{"parents":[{"controllerName":"b"},{"controllerName":"a","parentRef":{"name":"plum"},"conditions":[{"type":"ResolvedRefs","status":"False"}]}]}`, true},
		{`{"parents":[{"controllerName":"a"}]}`, false},
		{`{"parents":[]}`, false},
		{`{"parents_contain":[{"controllerName":"a"}]}`, true},
		{`{"parents_contain":[{"controllerName":"a","conditions":[{"type":"Accepted","status":"False"}]}]}`, false},
		{`{"parents_contain":[{"controllerName":"c"}]}`, false},
	} {
		var want map[string]any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if why := JudgeStatus(want, got); (why == "") != c.ok {
			t.Errorf("%s: %q", c.want, why)
		}
	}
}
