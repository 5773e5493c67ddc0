package tap

import (
	"net/netip"
	"testing"

	typepb "github.com/linkerd/linkerd2-proxy-api/go/http_types"
	netpb "github.com/linkerd/linkerd2-proxy-api/go/net"
	pb "github.com/linkerd/linkerd2-proxy-api/go/tap"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

func one() *Request {
	return &Request{
		Source: netip.MustParseAddrPort("10.1.2.3:4000"), Destination: netip.MustParseAddrPort("[fd00::1]:8080"),
		Method: "GET", Scheme: "http", Authority: "web.shop:8080", Path: "/books/1",
		DestinationLabels: map[string]string{"deployment": "web"}, RouteLabels: map[string]string{"route": "books"},
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		name, match string
		want        bool
	}{
		{"all of nothing", `all {}`, true},
		{"any of nothing", `any {}`, false},
		{"all", `all { matches { http { path { prefix: "/books" } } } matches { http { method { registered: GET } } } }`, true},
		{"all but one", `all { matches { http { path { prefix: "/books" } } } matches { http { method { registered: POST } } } }`, false},
		{"any", `any { matches { http { path { exact: "/x" } } } matches { http { authority { exact: "web.shop:8080" } } } }`, true},
		{"not", `not { http { path { exact: "/books/1" } } }`, false},
		{"source", `source { netmask { ip { ipv4: 167837696 } mask: 16 } }`, true},
		{"another source", `source { netmask { ip { ipv4: 167772160 } mask: 16 } }`, false},
		{"a destination of IPv6", `destination { netmask { ip { ipv6 { first: 18230571291595767808 } } mask: 8 } }`, true},
		{"ports", `destination { ports { min: 8000 max: 9000 } }`, true},
		{"one port, as the least", `destination { ports { min: 8080 } }`, true},
		{"one port, as the most", `destination { ports { max: 8080 } }`, true},
		{"not those above it", `destination { ports { min: 8079 } }`, false},
		{"nor those below it", `destination { ports { max: 8081 } }`, false},
		{"parts that say nothing", `all { matches {} matches { http { method { registered: GET } } } }`, true},
		{"scheme", `http { scheme { registered: HTTP } }`, true},
		{"another scheme", `http { scheme { unregistered: "ftp" } }`, false},
		{"another method", `http { method { unregistered: "PURGE" } }`, false},
		{"a label of the destination", `destination_label { key: "deployment" value: "web" }`, true},
		{"a label that is not there", `destination_label { key: "pod" value: "web" }`, false},
		{"a label of the route", `route_label { key: "route" value: "books" }`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m pb.ObserveRequest_Match
			if err := prototext.Unmarshal([]byte(tt.match), &m); err != nil {
				t.Fatal(err)
			}
			fits, err := compile(&m)
			if err != nil {
				t.Fatal(err)
			}
			if got := fits(one()); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestMatchesThatMakeNoSense(t *testing.T) {
	deep := &pb.ObserveRequest_Match{Match: &pb.ObserveRequest_Match_All{}}
	for range 100 {
		deep = &pb.ObserveRequest_Match{Match: &pb.ObserveRequest_Match_Not{Not: deep}}
	}
	wide := &pb.ObserveRequest_Match_Seq{}
	for range 2000 {
		wide.Matches = append(wide.Matches, &pb.ObserveRequest_Match{Match: &pb.ObserveRequest_Match_All{}})
	}
	for name, m := range map[string]*pb.ObserveRequest_Match{
		"nothing":       nil,
		"deep":          deep,
		"wide":          {Match: &pb.ObserveRequest_Match_Any{Any: wide}},
		"no key":        {Match: &pb.ObserveRequest_Match_DestinationLabel{DestinationLabel: &pb.ObserveRequest_Match_Label{Value: "x"}}},
		"no value":      {Match: &pb.ObserveRequest_Match_RouteLabel{RouteLabel: &pb.ObserveRequest_Match_Label{Key: "x"}}},
		"a new scheme":  {Match: &pb.ObserveRequest_Match_Http_{Http: &pb.ObserveRequest_Match_Http{Match: &pb.ObserveRequest_Match_Http_Scheme{Scheme: &typepb.Scheme{Type: &typepb.Scheme_Registered_{Registered: 7}}}}}},
		"no ports":      {Match: &pb.ObserveRequest_Match_Source{Source: &pb.ObserveRequest_Match_Tcp{Match: &pb.ObserveRequest_Match_Tcp_Ports{Ports: &pb.ObserveRequest_Match_Tcp_PortRange{}}}}},
		"no mask":       {Match: &pb.ObserveRequest_Match_Source{Source: &pb.ObserveRequest_Match_Tcp{Match: &pb.ObserveRequest_Match_Tcp_Netmask_{Netmask: &pb.ObserveRequest_Match_Tcp_Netmask{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{}}}}}}},
		"empty not":     {Match: &pb.ObserveRequest_Match_Not{}},
		"no address":    {Match: &pb.ObserveRequest_Match_Source{}},
		"no text":       {Match: &pb.ObserveRequest_Match_Http_{Http: &pb.ObserveRequest_Match_Http{Match: &pb.ObserveRequest_Match_Http_Path{}}}},
		"no scheme":     {Match: &pb.ObserveRequest_Match_Http_{Http: &pb.ObserveRequest_Match_Http{Match: &pb.ObserveRequest_Match_Http_Scheme{Scheme: &typepb.Scheme{}}}}},
		"backward":      {Match: &pb.ObserveRequest_Match_Source{Source: &pb.ObserveRequest_Match_Tcp{Match: &pb.ObserveRequest_Match_Tcp_Ports{Ports: &pb.ObserveRequest_Match_Tcp_PortRange{Min: 2, Max: 1}}}}},
		"a mask of 33":  {Match: &pb.ObserveRequest_Match_Source{Source: &pb.ObserveRequest_Match_Tcp{Match: &pb.ObserveRequest_Match_Tcp_Netmask_{Netmask: &pb.ObserveRequest_Match_Tcp_Netmask{Ip: &netpb.IPAddress{Ip: &netpb.IPAddress_Ipv4{}}, Mask: 33}}}}},
		"no HTTP match": {Match: &pb.ObserveRequest_Match_Http_{}},
	} {
		if _, err := compile(m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzMatch(f *testing.F) {
	b, _ := proto.Marshal(&pb.ObserveRequest_Match{Match: &pb.ObserveRequest_Match_Not{Not: &pb.ObserveRequest_Match{Match: &pb.ObserveRequest_Match_All{}}}})
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		var m pb.ObserveRequest_Match
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		if fits, err := compile(&m); err == nil {
			fits(one())
		}
	})
}
