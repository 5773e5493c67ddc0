package derive

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
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
