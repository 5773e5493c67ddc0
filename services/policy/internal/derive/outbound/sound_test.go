package outbound_test

import (
	"fmt"
	"math"

	pb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// sound says why Linkerd's proxy would refuse a whole answer; nil if it would
// take it. The rules are those of spec/proxy.md §5.6, §5.8, §6.2, §6.5 and of the
// comments in the API's .proto files, read apart from the code under test.
func sound(p *pb.OutboundPolicy) error {
	if _, err := proto.Marshal(p); err != nil {
		return fmt.Errorf("it cannot be encoded: %w", err)
	}
	if p.GetProtocol().GetKind() == nil {
		return fmt.Errorf("no protocol")
	}
	if d := p.GetProtocol().GetDetect(); d != nil && (d.GetTimeout() == nil || d.GetOpaque() == nil || d.GetHttp1() == nil || d.GetHttp2() == nil) {
		return fmt.Errorf("detection is incomplete")
	}
	return walk(p.ProtoReflect())
}

func walk(m protoreflect.Message) error {
	if err := judge(m); err != nil {
		return fmt.Errorf("%s: %w", m.Descriptor().FullName(), err)
	}
	var err error
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = walk(v.List().Get(i).Message())
			}
		default:
			err = walk(v.Message())
		}
		return err == nil
	})
	return err
}

// required are the fields without which a proxy cannot read a message.
var required = map[string][]string{
	"io.linkerd.proxy.meta.Resource":                               {"group", "kind", "name", "namespace"},
	"io.linkerd.proxy.outbound.OutboundPolicy":                     {"metadata", "protocol"},
	"io.linkerd.proxy.outbound.HttpRoute":                          {"metadata"},
	"io.linkerd.proxy.outbound.GrpcRoute":                          {"metadata"},
	"io.linkerd.proxy.outbound.TlsRoute":                           {"metadata", "rules"},
	"io.linkerd.proxy.outbound.OpaqueRoute":                        {"metadata", "rules"},
	"io.linkerd.proxy.outbound.ProxyProtocol.Opaque":               {"routes"},
	"io.linkerd.proxy.outbound.Backend":                            {"metadata", "queue"},
	"io.linkerd.proxy.outbound.HttpRoute.Rule":                     {"backends"},
	"io.linkerd.proxy.outbound.GrpcRoute.Rule":                     {"backends"},
	"io.linkerd.proxy.outbound.TlsRoute.Rule":                      {"backends"},
	"io.linkerd.proxy.outbound.OpaqueRoute.Rule":                   {"backends"},
	"io.linkerd.proxy.outbound.HttpRoute.Retry":                    {"conditions"},
	"io.linkerd.proxy.outbound.GrpcRoute.Retry":                    {"conditions"},
	"io.linkerd.proxy.grpc_route.GrpcRouteMatch":                   {"rpc"},
	"io.linkerd.proxy.http_route.HeaderMatch":                      {"name"},
	"io.linkerd.proxy.http_route.QueryParamMatch":                  {"name"},
	"io.linkerd.proxy.http_types.Headers.Header":                   {"name"},
	"io.linkerd.proxy.outbound.HttpRoute.WeightedRouteBackend":     {"backend"},
	"io.linkerd.proxy.outbound.GrpcRoute.WeightedRouteBackend":     {"backend"},
	"io.linkerd.proxy.http_route.HttpFailureInjector":              {"status"},
	"io.linkerd.proxy.outbound.FailureAccrual.Unified":             {"decay", "backoff"},
	"io.linkerd.proxy.outbound.FailureAccrual.ConsecutiveFailures": {"backoff"},
}

// judge looks at one message.
func judge(m protoreflect.Message) error {
	name := string(m.Descriptor().FullName())
	for _, field := range required[name] {
		if !m.Has(m.Descriptor().Fields().ByName(protoreflect.Name(field))) {
			return fmt.Errorf("no %s", field)
		}
	}
	// A oneof that is not set cannot be understood; a backend without one fails
	// what chooses it.
	for i := range m.Descriptor().Oneofs().Len() {
		one := m.Descriptor().Oneofs().Get(i)
		if m.WhichOneof(one) == nil && name != "io.linkerd.proxy.outbound.Backend" {
			return fmt.Errorf("%s is not set", one.Name())
		}
	}
	switch m.Descriptor().Name() {
	case "FirstAvailable", "RandomAvailable":
		return judgeBackends(m)
	case "Opaque":
		o, ok := m.Interface().(*pb.ProxyProtocol_Opaque)
		if ok && (len(o.GetRoutes()) != 1 || len(o.GetRoutes()[0].GetRules()) != 1) {
			return fmt.Errorf("a proxy takes one route of one rule")
		}
	case "StatusRange":
		s, _ := m.Interface().(*pb.HttpRoute_Retry_Conditions_StatusRange)
		if s.GetStart() < 1 || s.GetEnd() > 599 || s.GetStart() > s.GetEnd() {
			return fmt.Errorf("%d-%d", s.GetStart(), s.GetEnd())
		}
	}
	return nil
}

// judgeBackends wants some, and weights of which a sum can be made.
func judgeBackends(m protoreflect.Message) error {
	list := m.Get(m.Descriptor().Fields().ByName("backends")).List()
	if list.Len() == 0 {
		return fmt.Errorf("no backends")
	}
	weight := list.Get(0).Message().Descriptor().Fields().ByName("weight")
	if weight == nil {
		return nil
	}
	var sum uint64
	for i := range list.Len() {
		sum += list.Get(i).Message().Get(weight).Uint()
	}
	if sum == 0 || sum > math.MaxUint32 {
		return fmt.Errorf("weights sum up to %d", sum)
	}
	return nil
}
