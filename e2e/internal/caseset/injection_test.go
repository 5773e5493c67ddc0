package caseset

import (
	"encoding/json"
	"testing"
)

// The judge must find what is wrong: each want below is right but for one
// thing, and the word names it.
func TestJudgeInjectionFinds(t *testing.T) {
	var before, after map[string]any
	for text, to := range map[string]*map[string]any{
		`{"spec":{"containers":[{"name":"main"}]}}`: &before,
		`{"metadata":{"labels":{"a":"1"},"annotations":{"b":"2"}},"spec":{"volumes":[{"name":"v"}],
		  "initContainers":[{"name":"linkerd-init","args":["--proxy-uid","7"]}],
		  "containers":[{"name":"main"},{"name":"linkerd-proxy","resources":{},"env":[{"name":"X","value":"some text"}],
		  "ports":[{"name":"p","containerPort":1}],"volumeMounts":[{"mountPath":"/m"}],
		  "readinessProbe":{"httpGet":{"path":"/ready","port":4191}},"lifecycle":{"preStop":{"exec":{"command":["sleep"]}}}}]}}`: &after,
	} {
		if err := json.Unmarshal([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	got := Admitted{Allowed: true, Before: before, After: after}
	tests := []struct {
		want string
		ok   bool
	}{
		{`{"injected":true,"admitted":true,"unchanged":false}`, true},
		{`{"injected":false}`, false},
		{`{"unchanged":true}`, false},
		{`{"admitted":false}`, false},
		{`{"containers":["main","linkerd-proxy"],"init_containers":["linkerd-init"]}`, true},
		{`{"containers":["linkerd-proxy","main"]}`, false},
		{`{"labels":{"a":"1"},"annotations":{"b":"2"},"labels_absent":["b"],"annotations_absent":["a"]}`, true},
		{`{"labels":{"a":"2"}}`, false},
		{`{"labels_absent":["a"]}`, false},
		{`{"annotations_absent":["b"]}`, false},
		{`{"volumes_contain":["v"],"volumes_absent":["w"]}`, true},
		{`{"volumes_contain":["w"]}`, false},
		{`{"volumes_absent":["v"]}`, false},
		{`{"reasons":["host_network_enabled"]}`, false},
		{`{"proxy":{"env":{"X":"some text"},"env_absent":["Y"],"env_contains":{"X":"text"},"mounts":["/m"],"ports":{"p":1},
		   "resources":null,"readinessProbe":{"path":"/ready","port":4191},"livenessProbe":null,"lifecycle":{"preStop":["sleep"]}}}`, true},
		{`{"proxy":{"env":{"X":"other"}}}`, false},
		{`{"proxy":{"env_absent":["X"]}}`, false},
		{`{"proxy":{"env_contains":{"X":"other"}}}`, false},
		{`{"proxy":{"mounts":["/n"]}}`, false},
		{`{"proxy":{"ports":{"p":2}}}`, false},
		{`{"proxy":{"readinessProbe":null}}`, false},
		{`{"init":{"args_pairs":{"--proxy-uid":"7"}}}`, true},
		{`{"init":{"args_pairs":{"--proxy-uid":"8"}}}`, false},
		{`{"debug":{"image":"x"}}`, false},
		{`{"something":"else"}`, false},
	}
	for _, tt := range tests {
		var want map[string]any
		if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
			t.Fatal(err)
		}
		if why := JudgeInjection(want, got); (why == "") != tt.ok {
			t.Errorf("%s: judged %q, want right: %v", tt.want, why, tt.ok)
		}
	}
}
