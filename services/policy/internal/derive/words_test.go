package derive_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

func itoa(n uint16) string { return strconv.Itoa(int(n)) }

func TestParsePorts(t *testing.T) {
	for _, tc := range []struct {
		in, want string
		wrong    int
	}{
		{"", "", 0},
		{" , ,", "", 0},
		{"25,587, 25", "25,587", 0},
		{"10-20,15-30,31,33", "10-31,33", 0},
		{"65535,65534,1-2", "1-2,65534-65535", 0},
		{"1-65535", "1-65535", 0},
		{"80,http,443", "80,443", 1},
		{"0,70000,-1,5-,9-3,7", "7", 5},
	} {
		got, err := derive.ParsePorts(tc.in)
		wrong := 0
		if err != nil {
			wrong = len(strings.Split(err.Error(), "\n"))
		}
		if got.String() != tc.want || wrong != tc.wrong {
			t.Errorf("ParsePorts(%q) = %q with %d mistakes (%v), want %q with %d", tc.in, got, wrong, err, tc.want, tc.wrong)
		}
	}
}

func FuzzParsePorts(f *testing.F) {
	for _, s := range []string{"25,587", "1-65535", "65535-65535,1", "-", ",,", "5-4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := derive.ParsePorts(s)
		again, err := derive.ParsePorts(got.String())
		if err != nil || again.String() != got.String() {
			t.Fatalf("%q reads as %q, then as %q, %v", s, got, again, err)
		}
		// A plain reading of the same list must agree on every port.
		for port := 1; port <= 65535; port += 257 {
			if want := listed(s, port); got.Contains(uint16(port)) != want {
				t.Fatalf("%q: Contains(%d) = %t", s, port, !want)
			}
		}
	})
}

// listed says whether a list names a port, entry by entry.
func listed(list string, port int) bool {
	for i, entry := range strings.Split(list, ",") {
		if i == 4096 {
			return false
		}
		low, high, isRange := strings.Cut(strings.TrimSpace(entry), "-")
		if !isRange {
			high = low
		}
		first, err1 := derive.ParsePort(low)
		last, err2 := derive.ParsePort(high)
		if err1 == nil && err2 == nil && int(first) <= port && port <= int(last) {
			return true
		}
	}
	return false
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, " 10s ": 10 * time.Second,
		"5m": 5 * time.Minute, "2h": 2 * time.Hour, "1d": 24 * time.Hour, "106751d": 106751 * 24 * time.Hour,
	} {
		if got, err := derive.ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "s", "5", "-5s", "0.5s", "1m30s", "5 s", "5S", "1w", "99999999999999999999s", "106752d", "+5s", "5s5",
	} {
		if got, err := derive.ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"0", "500ms", "106752d", "-1s", "1m30s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := derive.ParseDuration(s)
		if err != nil {
			return
		}
		again, err := derive.ParseDuration(strconv.FormatInt(d.Milliseconds(), 10) + "ms")
		if d < 0 || err != nil || again != d {
			t.Errorf("ParseDuration(%q) = %v, again %v, %v", s, d, again, err)
		}
	})
}

func TestParseStatuses(t *testing.T) {
	got, err := derive.ParseStatuses("gateway-error,429, 400-404,5XX")
	want := []derive.StatusRange{{First: 502, Last: 504}, {First: 429, Last: 429}, {First: 400, Last: 404}, {First: 500, Last: 599}}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, in := range []string{"", "99", "600", "404-400", "4xx", "500-", "-500", "500,,501", "500-501-502", strings.Repeat("500,", 600)} {
		if got, err := derive.ParseStatuses(in); err == nil {
			t.Errorf("ParseStatuses(%q) = %v, want an error", in, got)
		}
	}
}

func TestParseGRPCStatuses(t *testing.T) {
	got, err := derive.ParseGRPCStatuses("cancelled,Deadline-Exceeded, internal,resource-exhausted,unavailable")
	want := derive.GRPCStatus{Cancelled: true, DeadlineExceeded: true, Internal: true, ResourceExhausted: true, Unavailable: true}
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := derive.ParseGRPCStatuses("internal,unknown"); err == nil {
		t.Error("unknown is not retryable")
	}
}

func FuzzParseStatuses(f *testing.F) {
	for _, s := range []string{"5xx", "gateway-error,429", "400-404", ",", "599-599"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ranges, err := derive.ParseStatuses(s)
		if err == nil && len(ranges) == 0 {
			t.Errorf("ParseStatuses(%q) is empty without an error", s)
		}
		for _, r := range ranges {
			// The proxy refuses a whole policy over one range outside these.
			if r.First < 100 || r.Last > 599 || r.First > r.Last {
				t.Errorf("ParseStatuses(%q) has %v", s, r)
			}
		}
		_, _ = derive.ParseGRPCStatuses(s)
	})
}

func TestParseNetworks(t *testing.T) {
	got, err := derive.ParseNetworks([]string{"10.1.2.3/8", " ", "192.0.2.7", "fd00::1/8", "::1"})
	want := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32"),
		netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("::1/128"),
	}
	if err != nil || !cmp.Equal(got, want, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, in := range []string{"10.0.0.0/33", "ten", "fe80::1%eth0", "10.0.0.0/08", ""} {
		if got, err := derive.ParseNetwork(in); err == nil {
			t.Errorf("ParseNetwork(%q) = %v, want an error", in, got)
		}
	}
}

func FuzzParseNetwork(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "::1", "fe80::1%eth0", "::ffff:10.0.0.1/104"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := derive.ParseNetwork(s)
		if err != nil {
			return
		}
		if !p.IsValid() || p != p.Masked() || p.Addr().Zone() != "" {
			t.Errorf("ParseNetwork(%q) = %v", s, p)
		}
	})
}

func TestDefaultPolicyNeverOpensWhenIdentityIsRequired(t *testing.T) {
	for _, name := range []string{"deny", "audit", "all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated"} {
		p, err := derive.ParseDefaultPolicy(name)
		if err != nil {
			t.Fatal(err)
		}
		a := p.Authenticated()
		if a.OnlyCluster() != p.OnlyCluster() || (p == derive.Deny) != (a == derive.Deny) || p.RequiresIdentity() && !a.RequiresIdentity() {
			t.Errorf("%s becomes %s", p, a)
		}
	}
	if _, err := derive.ParseDefaultPolicy("Deny"); err == nil {
		t.Error("a policy's name has one case")
	}
}

func TestAnswerEqual(t *testing.T) {
	var none *derive.Answer
	if !none.Equal(nil) || none.Equal(&derive.Answer{}) || (&derive.Answer{}).Equal(nil) {
		t.Error("no answer is equal to no answer only")
	}
}
