package why

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	routesv1 "github.com/weftmesh/weft/proto/gen/weft/routes/v1"
)

// does tells what a rule of any kind does: filters, where it goes, and the limits
// of time and number. The kinds have the same fields and no type in common.
func does(rule proto.Message) (lines []string) {
	m := rule.ProtoReflect()
	for _, f := range list(m, "filters") {
		lines = append(lines, filterText(f))
	}
	lines = append(lines, distribution(message(m, "backends"))...)
	for _, name := range []protoreflect.Name{"timeouts", "retry"} {
		if one := message(m, name); one != nil {
			if text := fields(one.Interface()); text != "{}" {
				lines = append(lines, string(name)+": "+text)
			}
		}
	}
	return lines
}

// distribution tells where requests go.
func distribution(m protoreflect.Message) (lines []string) {
	if m == nil {
		return []string{"goes nowhere"}
	}
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if kind == nil || kind.Name() == "empty" {
		return []string{"goes nowhere"}
	}
	backends := list(m.Get(kind).Message(), "backends")
	var all uint64
	for _, b := range backends {
		all += weight(b)
	}
	for _, b := range backends {
		line := "goes to "
		one := b
		if kind.Name() == "random_available" {
			line = weights(uint32(weight(b)), all) + " to "
			one = message(b, "backend")
		}
		if one == nil {
			continue
		}
		if target := message(one, "backend"); target != nil {
			if backend, ok := target.Interface().(*outbound.Backend); ok {
				line += backendText(backend)
			}
		}
		for _, f := range list(one, "filters") {
			line += ", " + filterText(f)
		}
		lines = append(lines, line)
	}
	return lines
}

// beyondText tells what a rule does that Linkerd's API cannot say.
func beyondText(e *routesv1.RuleExtension) (lines []string) {
	add := func(where string, f *routesv1.Filters) {
		if w := f.GetRewrite(); w != nil {
			lines = append(lines, where+"rewrite "+fields(w))
		}
		if h := f.GetResponseHeaders(); h != nil {
			lines = append(lines, where+"response header modifier "+fields(h))
		}
		for _, m := range f.GetMirrors() {
			var b outbound.Backend
			to := "a backend"
			if proto.Unmarshal(m.GetBackend(), &b) == nil {
				to = backendText(&b)
			}
			lines = append(lines, fmt.Sprintf("%scopies of %d in %d to %s", where, m.GetNumerator(), m.GetDenominator(), to))
		}
	}
	add("", e.GetFilters())
	for _, b := range e.GetBackends() {
		add(fmt.Sprintf("backend %d: ", b.GetBackend()+1), b.GetFilters())
	}
	if s := e.GetSessionPersistence(); s != nil {
		lines = append(lines, "session persistence "+fields(s))
	}
	if d := e.GetAttemptTimeout(); d != nil {
		lines = append(lines, "one attempt may take "+d.AsDuration().String())
	}
	return lines
}

func backendText(b *outbound.Backend) string {
	text := parent(b.GetMetadata())
	if b.GetKind() == nil {
		return text + ", which is of no use"
	}
	return text
}

// filterText is a filter's kind and what it says.
func filterText(m protoreflect.Message) string {
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if kind == nil {
		return "filter of no kind"
	}
	return strings.ReplaceAll(string(kind.Name()), "_", " ") + " " + fields(m.Get(kind).Message().Interface())
}

// fields writes a message in one line, the same in every build.
func fields(m proto.Message) string {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		return "(" + err.Error() + ")"
	}
	return out.String()
}

func list(m protoreflect.Message, name protoreflect.Name) (out []protoreflect.Message) {
	field := m.Descriptor().Fields().ByName(name)
	if field == nil {
		return nil
	}
	items := m.Get(field).List()
	for i := range items.Len() {
		out = append(out, items.Get(i).Message())
	}
	return out
}

// message is nil if the field does not exist or is not set.
func message(m protoreflect.Message, name protoreflect.Name) protoreflect.Message {
	field := m.Descriptor().Fields().ByName(name)
	if field == nil || !m.Has(field) {
		return nil
	}
	return m.Get(field).Message()
}

func weight(m protoreflect.Message) uint64 {
	field := m.Descriptor().Fields().ByName("weight")
	if field == nil {
		return 0
	}
	return m.Get(field).Uint()
}
