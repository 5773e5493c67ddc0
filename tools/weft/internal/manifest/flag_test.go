package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/weftmesh/weft/services/injector/inject"
)

// TestFlags: each flag gives its value and its annotation. The table holds every
// flag, so that a new one cannot be forgotten.
func TestFlags(t *testing.T) {
	type want struct {
		text       string
		value      any
		annotation string
	}
	tests := map[string]want{
		"image-pull-policy":                 {"Always", "Always", "config.linkerd.io/image-pull-policy"},
		"proxy-image":                       {"r/p", "r/p", "config.linkerd.io/proxy-image"},
		"proxy-image-version":               {"v9", "v9", "config.linkerd.io/proxy-version"},
		"proxy-version":                     {"v9", "v9", "config.linkerd.io/proxy-version"},
		"inbound-port":                      {"1", int64(1), "config.linkerd.io/inbound-port"},
		"outbound-port":                     {"65535", int64(65535), "config.linkerd.io/outbound-port"},
		"control-port":                      {"3", int64(3), "config.linkerd.io/control-port"},
		"admin-port":                        {"4", int64(4), "config.linkerd.io/admin-port"},
		"skip-inbound-ports":                {"25,100-200", "25,100-200", "config.linkerd.io/skip-inbound-ports"},
		"skip-outbound-ports":               {"3306", "3306", "config.linkerd.io/skip-outbound-ports"},
		"skip-subnets":                      {"10.0.0.0/8,fd00::/8", "10.0.0.0/8,fd00::/8", "config.linkerd.io/skip-subnets"},
		"proxy-uid":                         {"1000", int64(1000), "config.linkerd.io/proxy-uid"},
		"proxy-gid":                         {"-1", int64(-1), "config.linkerd.io/proxy-gid"},
		"proxy-log-level":                   {"debug", "debug", "config.linkerd.io/proxy-log-level"},
		"proxy-cpu-request":                 {"100m", "100m", "config.linkerd.io/proxy-cpu-request"},
		"proxy-cpu-limit":                   {"1.5", "1.5", "config.linkerd.io/proxy-cpu-limit"},
		"proxy-memory-request":              {"20Mi", "20Mi", "config.linkerd.io/proxy-memory-request"},
		"proxy-memory-limit":                {"1Gi", "1Gi", "config.linkerd.io/proxy-memory-limit"},
		"proxy-cpu":                         {"1", "1", "config.linkerd.io/proxy-cpu-request"},
		"proxy-memory":                      {"1Mi", "1Mi", "config.linkerd.io/proxy-memory-request"},
		"enable-external-profiles":          {"true", true, "config.linkerd.io/enable-external-profiles"},
		"default-inbound-policy":            {"deny", "deny", "config.linkerd.io/default-inbound-policy"},
		"native-sidecar":                    {"true", true, "config.linkerd.io/proxy-enable-native-sidecar"},
		"wait-before-exit-seconds":          {"10", int64(10), "config.alpha.linkerd.io/proxy-wait-before-exit-seconds"},
		"require-identity-on-inbound-ports": {"8080", "8080", "config.linkerd.io/proxy-require-identity-inbound-ports"},
		"opaque-ports":                      {"3306,named", "3306,named", "config.linkerd.io/opaque-ports"},
		"enable-debug-sidecar":              {"true", true, "config.linkerd.io/enable-debug-sidecar"},
		"close-wait-timeout":                {"60s", "60s", "config.linkerd.io/close-wait-timeout"},
	}
	all := append(ProxyFlags(), injectFlags()...)
	if len(all) != len(tests) {
		t.Errorf("%d flags, %d of them tested", len(all), len(tests))
	}
	base := tree(inject.DefaultValues("v1"))
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			fs.Usage = func() {}
			flags := BindFlags(fs, all)
			w := tests[f.Name]
			if err := fs.Parse([]string{"--" + f.Name + "=" + w.text}); err != nil {
				t.Fatal(err)
			}
			given := flags.Given()
			if len(given) != 1 || given[0].Annotation != w.annotation || !cmp.Equal(given[0].Value, w.value) || given[0].Text != w.text {
				t.Fatalf("given %+v, want %+v", given, w)
			}
			for _, path := range f.Values {
				if _, ok := lookup(base, path); !ok {
					t.Errorf("the mesh's settings have no %s", path)
				}
			}
		})
	}
}

func TestFlagsRefuse(t *testing.T) {
	for _, arg := range []string{
		"--inbound-port=0", "--inbound-port=65536", "--inbound-port=x", "--skip-inbound-ports=5-", "--skip-inbound-ports=9-5", "--skip-inbound-ports=",
		"--skip-subnets=10.0.0.1", "--proxy-uid=root", "--proxy-cpu-request=lots", "--default-inbound-policy=open", "--image-pull-policy=never",
		"--enable-external-profiles=perhaps", "--wait-before-exit-seconds=-1", "--close-wait-timeout=-5s", "--close-wait-timeout=",
	} {
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		fs.Usage = func() {}
		BindFlags(fs, append(ProxyFlags(), injectFlags()...))
		if err := fs.Parse([]string{arg}); err == nil {
			t.Errorf("%s was taken", arg)
		}
	}
}

func TestAnnotationsLeaveOutWhatIsSo(t *testing.T) {
	base := inject.DefaultValues("v1")
	base.Proxy.LogLevel, base.Proxy.Image.Name = "debug", "r/proxy"
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o := injectOptions{flags: BindFlags(fs, ProxyFlags()), registry: "r/"}
	if err := fs.Parse([]string{"--proxy-log-level=debug", "--proxy-uid=7", "--inbound-port=4143"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"config.linkerd.io/proxy-uid": "7"}, o.annotations(base)); diff != "" {
		t.Errorf("annotations() (-want +got):\n%s", diff)
	}
}

func TestRegistry(t *testing.T) {
	for _, tt := range [][3]string{
		{"ghcr.io/weftmesh/proxy", "reg:5000/a/", "reg:5000/a/proxy"}, {"proxy", "r", "r/proxy"}, {"a/b", "", "a/b"},
	} {
		if got := Registry(tt[0], tt[1]); got != tt[2] {
			t.Errorf("Registry(%q, %q) = %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}
