package conf

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

type fuzzed struct {
	Name    string
	Grace   time.Duration
	Count   int8
	Size    uint16
	Ratio   float32
	On      bool
	Items   []int
	Network netip.Prefix
	Nested  struct{ Addr netip.AddrPort }
}

// FuzzLoad gives any text to every kind of setting: Load must refuse what it
// does not accept with an *Error, and never panic.
func FuzzLoad(f *testing.F) {
	f.Add("-grace\n1s\n-on\n-items=1,2", "WEFT_COUNT=12\nWEFT_NESTED_ADDR=1.2.3.4:5")
	f.Add("--nested.addr=[::1]:1\n--\n-", "WEFT_NESTED_X=1")
	f.Add("-ratio=1e400\n-size=-1\n-network=10.0.0.0/33", "WEFT_=\n=\nWEFT_ON")
	f.Fuzz(func(t *testing.T, args, environ string) {
		_, err := LoadFrom(fuzzed{}, strings.Split(args, "\n"), strings.Split(environ, "\n"))
		var wrong *Error
		var help *Help
		if err != nil && !errors.As(err, &wrong) && !errors.As(err, &help) {
			t.Errorf("LoadFrom() = %v, want *Error or *Help", err)
		}
		if wrong != nil && len(wrong.Problems) == 0 {
			t.Error("an *Error without a problem")
		}
	})
}

func TestKebab(t *testing.T) {
	for name, want := range map[string]string{
		"Listen": "listen", "ClusterDomain": "cluster-domain", "CA": "ca", "TLSCert": "tls-cert",
		"ClusterIPs": "cluster-ips", "PodIPRange": "pod-ip-range", "H2Window": "h2-window",
		"OutboundTransportMode": "outbound-transport-mode", "A": "a",
	} {
		if got := kebab(name); got != want {
			t.Errorf("kebab(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"listen", "bus.servers"}
	for name, want := range map[string]string{
		"listne":                 "; did you mean listen?",
		"bus.server":             "; did you mean bus.servers?",
		"elephant":               "",
		strings.Repeat("a", 200): "",
	} {
		if got := didYouMean(name, known); got != want {
			t.Errorf("didYouMean(%q) = %q, want %q", name, got, want)
		}
	}
}
