package derive

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/weftmesh/weft/services/destination/internal/ports"
	"github.com/weftmesh/weft/services/destination/internal/row"
)

// TestEncodeIsProtobuf: what is written by hand reads as what was meant, and
// equal addresses have equal bytes.
func TestEncodeIsProtobuf(t *testing.T) {
	many := map[string]string{}
	for i := range 30 {
		many[fmt.Sprint("label", i)] = strings.Repeat("v", 40*i)
	}
	for at, locality := range []string{nearUnknown: "unknown", nearLocal: "local", nearRemote: "remote", nearFavoured: "local"} {
		got := new(pb.WeightedAddr)
		if err := proto.Unmarshal(nears[at], got); err != nil {
			t.Fatal(err)
		}
		want := &pb.WeightedAddr{Weight: 10_000, MetricLabels: map[string]string{"zone_locality": locality}}
		if near(at) == nearFavoured {
			want.Weight = 100_000
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("near %d (-meant +read):\n%s", at, diff)
		}
	}
	for _, labels := range []map[string]string{nil, {"": ""}, {"zone": "west-1", "é": ""}, many} {
		meant := func() *pb.WeightedAddr {
			wa := &pb.WeightedAddr{TlsIdentity: &pb.TlsIdentity{ServerName: &pb.TlsIdentity_DnsLikeIdentity{Name: "a.b"}}}
			if labels != nil {
				wa.MetricLabels = map[string]string{}
			}
			maps.Copy(wa.MetricLabels, labels)
			return wa
		}
		raw, err := encode(meant())
		if err != nil {
			t.Fatal(err)
		}
		got := new(pb.WeightedAddr)
		if err := proto.Unmarshal(raw, got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(meant(), got, protocmp.Transform()); diff != "" {
			t.Errorf("(-meant +read):\n%s", diff)
		}
		if again, err := encode(meant()); err != nil || !bytes.Equal(raw, again) {
			t.Errorf("equal addresses have other bytes: %v", err)
		}
		if n := proto.Size(meant()); n != len(raw) {
			t.Errorf("%d bytes, want %d", len(raw), n)
		}
	}
	if raw, err := encode(&pb.WeightedAddr{Weight: 10_000}); err != nil || len(raw) != 0 {
		t.Errorf("the weight, which near has, is written: %x, %v", raw, err)
	}
	if _, err := encode(&pb.WeightedAddr{MetricLabels: map[string]string{"a": "\xff"}}); err == nil {
		t.Error("a label that is not UTF-8 was encoded")
	}
}

// TestAddressesAreEncodedAsMeant: those of pods are as their message says, for
// both families, whatever pod came before.
func TestAddressesAreEncodedAsMeant(t *testing.T) {
	c := Config{ControlPlane: "linkerd", TrustDomain: "trust", UpgradeHTTP2: true, HTTP2: &pb.Http2ClientParams{}, Opaque: ports.Of(3306)}
	template := func(change func(*row.Template)) *row.Template {
		t := &row.Template{ServiceAccount: "sa", OwnerKind: "deployment", OwnerName: "plum", ControlPlane: "linkerd", Proxy: &row.Proxy{Inbound: 4143, Admin: 4191, Control: 4190}}
		change(t)
		return t
	}
	templates := []*row.Template{
		template(func(*row.Template) {}),
		template(func(t *row.Template) { t.ControlPlane = "" }),
		template(func(t *row.Template) { t.ControlPlane = "other" }),
		template(func(t *row.Template) { t.Proxy = nil }),
		template(func(t *row.Template) { t.SkipInbound = ports.Of(80) }),
	}
	made := &pods{config: c}
	for i := range 200 {
		p := row.Peer{Workload: &row.Workload{Namespace: []string{"grove", "market"}[i/7%2], Name: fmt.Sprint("pod-", i)}, Template: templates[i/3%len(templates)]}
		at := netip.MustParseAddrPort([]string{"10.0.0.1:80", "[2001:db8::1]:80", "0.0.0.0:3306", "[::]:65535", "255.255.255.255:1"}[i%5])
		to := place{at: at, port: at.Port(), zone: "west-1"}
		meant, wantErr := c.podAddr(p, to, nil)
		raw, err := made.encode(p, to, nil)
		if !errors.Is(err, wantErr) {
			t.Fatalf("%d: %v, want %v", i, err, wantErr)
		}
		if err != nil {
			continue
		}
		got := new(pb.WeightedAddr)
		if err := proto.Unmarshal(raw, got); err != nil {
			t.Fatal(err)
		}
		meant.Weight = 0 // near has it
		if diff := cmp.Diff(meant, got, protocmp.Transform()); diff != "" {
			t.Fatalf("%d (-meant +read):\n%s", i, diff)
		}
	}
}
