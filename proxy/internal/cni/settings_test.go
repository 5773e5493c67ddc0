package cni

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/redirect"
)

func TestOptions(t *testing.T) {
	const settings = `{"incoming-proxy-port":4143,"outgoing-proxy-port":"4140","proxy-uid":2102,"ports-to-redirect":[80,"90"],
		"inbound-ports-to-ignore":["4191","4190"],"outbound-ports-to-ignore":"25,26","subnets-to-ignore":null,"ipv6":true}`
	base := func() redirect.Options {
		return redirect.Options{
			Inbound: 4143, Outbound: 4140, UID: 2102, GID: -1, IPv6: true, Redirect: []string{"80", "90"},
			SkipInbound: []string{"4191", "4190", "4190", "4191"}, SkipOutbound: []string{"25", "26"},
		}
	}
	const proxy = `"spec":{"containers":[{"name":"linkerd-proxy"}]}`
	for _, tt := range []struct {
		name, pod, namespace string
		ports                []string
		want                 func(*redirect.Options)
	}{
		{"as configured", `{` + proxy + `}`, `{}`, nil, func(*redirect.Options) {}},
		{
			"annotations of the pod",
			`{"metadata":{"annotations":{"config.linkerd.io/skip-inbound-ports":"1-2, 3","config.linkerd.io/skip-outbound-ports":"4",
				"config.linkerd.io/skip-subnets":"10.0.0.0/8,fd00::/8","config.linkerd.io/proxy-uid":"7","config.linkerd.io/proxy-gid":"8",
				"config.linkerd.io/inbound-port":"5143","config.linkerd.io/outbound-port":"5140","config.linkerd.io/admin-port":"5191"}},` + proxy + `}`,
			`{"config.linkerd.io/skip-outbound-ports":"99"}`, nil,
			func(o *redirect.Options) {
				o.SkipInbound, o.SkipOutbound = []string{"1-2", " 3", "4190", "5191"}, []string{"4"}
				o.SkipSubnets, o.UID, o.GID, o.Inbound, o.Outbound = []string{"10.0.0.0/8", "fd00::/8"}, 7, 8, 5143, 5140
			},
		},
		{
			"annotations of the namespace", `{"metadata":{"annotations":{"config.linkerd.io/skip-outbound-ports":" "}},` + proxy + `}`,
			`{"config.linkerd.io/skip-outbound-ports":"99"}`, nil, func(o *redirect.Options) { o.SkipOutbound = []string{"99"} },
		},
		{
			"the control plane", `{` + proxy + `}`, `{}`,
			[]string{"443", "6443"},
			func(o *redirect.Options) { o.SkipOutbound = []string{"25", "26", "443", "6443"} },
		},
		{
			"the user that the pod gives all containers", `{"spec":{"securityContext":{"runAsUser":5},"containers":[{"name":"linkerd-proxy"}]}}`, `{}`, nil,
			func(o *redirect.Options) { o.UID = 5 },
		},
		{
			"the proxy's real user", `{"metadata":{"annotations":{"config.linkerd.io/proxy-uid":"7"}},
				"spec":{"securityContext":{"runAsUser":5},"initContainers":[{"name":"linkerd-proxy","securityContext":{"runAsUser":6}}]}}`, `{}`, nil,
			func(o *redirect.Options) { o.UID = 6 },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Settings{UID: -1, GID: -1}
			var pod apiserver.Pod
			var namespace map[string]string
			for text, into := range map[string]any{settings: &s, tt.pod: &pod, tt.namespace: &namespace} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			want := base()
			tt.want(&want)
			for range 2 { // the settings serve every pod, so none may change them
				got, bad := s.options(&pod, namespace, tt.ports)
				if diff := cmp.Diff(want, got); bad != nil || diff != "" {
					t.Errorf("options() (-want +got): %v\n%s", bad, diff)
				}
			}
		})
	}
}

func TestAPIPorts(t *testing.T) {
	var s apiserver.Service
	if err := json.Unmarshal([]byte(`{"spec":{"ports":[{"port":443,"targetPort":6443},{"port":8443,"targetPort":"https"},{"port":1}]}}`), &s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"443", "6443", "8443", "1"}, apiPorts(&s)); diff != "" {
		t.Errorf("apiPorts() (-want +got):\n%s", diff)
	}
}

// FuzzConf: whatever a runtime hands over, there is a configuration or an error
// of the specification, and what goes through is JSON.
func FuzzConf(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.0.0","linkerd":{"proxy-uid":"1","ports-to-redirect":[1,"2"],"inbound-ports-to-ignore":"3"},"prevResult":{"ips":[]}}`), "A=B;K8S_POD_NAME=x")
	f.Add([]byte(`{"prevResult":7}`), ";;=;K8S_POD_UID==")
	f.Fuzz(func(t *testing.T, conf []byte, arguments string) {
		_, _ = parseArgs(arguments)
		c, err := ParseConf(conf)
		if err == nil {
			var out []byte
			if out, err = c.result(); err == nil && !json.Valid(out) {
				t.Errorf("result() = %s", out)
			}
		}
		if err != nil {
			if o := describe("1.0.0", err); o.Code == 0 || o.Msg == "" {
				t.Errorf("describe(%v) = %+v", err, o)
			}
		}
	})
}
