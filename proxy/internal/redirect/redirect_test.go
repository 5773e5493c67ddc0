package redirect_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/say"
)

func redirectRead(t *testing.T, path string) string {
	t.Helper()
	// Through the calling thread's own entry, since namespaces are a thread's.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Errorf("reading %s: %v", path, err)
	}
	return string(b)
}

func TestPlanRefuses(t *testing.T) {
	good := redirect.Options{Inbound: 4143, Outbound: 4140, UID: 2102, GID: -1}
	for _, tt := range []struct {
		name   string
		change func(*redirect.Options)
		want   string
	}{
		{"no inbound port", func(o *redirect.Options) { o.Inbound = -1 }, "incoming-proxy-port is -1"},
		{"a port too large", func(o *redirect.Options) { o.Outbound = 70000 }, "outgoing-proxy-port is 70000"},
		{"one port for both", func(o *redirect.Options) { o.Outbound = 4143 }, "both 4143"},
		{"nobody excluded", func(o *redirect.Options) { o.UID = -1 }, "neither proxy-uid nor proxy-gid"},
		{"no such user", func(o *redirect.Options) { o.UID = 1<<32 - 1 }, "proxy-uid is 4294967295"},
		{"words for ports", func(o *redirect.Options) { o.SkipInbound = []string{"80", "http"} }, `inbound-ports-to-ignore: "http"`},
		{"a range backwards", func(o *redirect.Options) { o.SkipOutbound = []string{"90-80"} }, `"90-80" ends before it begins`},
		{"an open range", func(o *redirect.Options) { o.Redirect = []string{"80-"} }, `ports-to-redirect: "80-"`},
		{"a port of six digits", func(o *redirect.Options) { o.Redirect = []string{"123456"} }, `"123456"`},
		{"an address", func(o *redirect.Options) { o.SkipSubnets = []string{"10.0.0.1"} }, `"10.0.0.1" is not a subnet`},
		{"long nonsense", func(o *redirect.Options) { o.SkipSubnets = []string{strings.Repeat("é", 1000)} }, "ééééé…"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := good
			tt.change(&o)
			_, err := redirect.Plan(o)
			p, ok := errors.AsType[*say.Problem](err)
			if !ok || p.Exit() != redirect.ExitUsage || !strings.Contains(p.Why, tt.want) || len(p.Why) > 300 {
				t.Errorf("Plan() = %v, want a problem that says %q", err, tt.want)
			}
		})
	}
	if _, err := redirect.Plan(good); err != nil {
		t.Errorf("Plan() = %v", err)
	}
}

// Every mistake is named, not the first only.
func TestPlanNamesEveryMistake(t *testing.T) {
	_, err := redirect.Plan(redirect.Options{UID: -1, GID: -1, SkipInbound: []string{"x", "1", "9-8"}, SkipSubnets: []string{"y", "::/0", "z"}})
	for _, want := range []string{"incoming", "outgoing", "proxy-uid", `"x"`, `"9-8"`, `"y"`, `"z"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Plan() = %v, want it to name %s", err, want)
		}
	}
}

// A list of nothing but mistakes makes no message that fills a pod's events.
func TestManyMistakes(t *testing.T) {
	_, err := redirect.ParsePorts(strings.Split(strings.Repeat("x,", 10_000), ","))
	if err == nil || !strings.HasSuffix(err.Error(), "; and 9980 more") || len(err.Error()) > 4096 {
		t.Errorf("ParsePorts() = %.300v", err)
	}
}

func TestTooManyPorts(t *testing.T) {
	var ports []string
	for p := 1; p < 3000; p += 2 {
		ports = append(ports, fmt.Sprint(p))
	}
	if _, err := redirect.ParsePorts(ports); err == nil || !strings.Contains(err.Error(), "1500 separate entries") {
		t.Errorf("ParsePorts() = %v", err)
	}
}

// FuzzPlan: no list crashes it, and what it accepts is sorted, apart, and within
// bounds, as the kernel demands.
func FuzzPlan(f *testing.F) {
	f.Add("80,100-200, 7 ,", "10.0.0.0/8,fd00::/8,0.0.0.0/0,::/0")
	f.Add("0-65535,65535", "255.255.255.255/32,ffff::/16,::ffff:10.0.0.0/104")
	f.Add("-,--,1-2-3,٣", "10.0.0.0/33,/8,fe80::1%eth0/64")
	f.Fuzz(func(t *testing.T, ports, subnets string) {
		rules, err := redirect.Plan(redirect.Options{
			Inbound: 1, Outbound: 2, UID: 3, GID: 4, IPv6: true,
			SkipInbound: strings.Split(ports, ","), Redirect: strings.Split(ports, ","), SkipSubnets: strings.Split(subnets, ","),
		})
		if err != nil {
			return
		}
		for _, s := range rules.Sets {
			for i, span := range s.Spans {
				if len(span.First) != len(span.Last) || string(span.First) > string(span.Last) {
					t.Errorf("%s has the span %v", s.Name, span)
				}
				if i > 0 && string(s.Spans[i-1].Last) >= string(span.First) {
					t.Errorf("%s has %v and then %v", s.Name, s.Spans[i-1], span)
				}
			}
		}
		again, err := redirect.Plan(redirect.Options{
			Inbound: 1, Outbound: 2, UID: 3, GID: 4, IPv6: true,
			SkipInbound: strings.Split(ports, ","), Redirect: strings.Split(ports, ","), SkipSubnets: strings.Split(subnets, ","),
		})
		if diff := cmp.Diff(rules.String(), again.String()); err != nil || diff != "" {
			t.Errorf("the second plan differs: %v\n%s", err, diff)
		}
	})
}
