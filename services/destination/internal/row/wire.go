package row

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Endpoints and workloads are nearly all rows of a cluster, and reading them is
// most of a replica's start. So the usual ones are read here without the
// generated message, which takes twice as long and leaves several times the
// garbage. A test holds the two against each other.

// Decoder reads rows, and remembers for the next what they have in common. It is
// for one cut, not for concurrent use; the zero value is ready.
type Decoder struct {
	names  map[string]Name
	common *Common // of the last endpoint
	hints  []Name
	ports  []EndpointPort
	hosts  []byte
}

// name interns b, at no cost if it was here before.
func (d *Decoder) name(b []byte) Name {
	if n, ok := d.names[string(b)]; ok {
		return n
	}
	n := NameOf(string(b))
	if d.names == nil {
		d.names = make(map[string]Name)
	}
	d.names[n.Value()] = n
	return n
}

// Field numbers of rows.proto.
const (
	endpointSlice    = 3
	endpointAddress  = 4
	endpointWorkload = 6
	endpointReady    = 7
	endpointHostname = 10
	endpointZone     = 12
	endpointHints    = 13
	endpointPorts    = 14
	endpointUnusual  = 15 // and above: of mirrored services
	endpointSliceUID = 19 // not read here, and in every row

	portName   = 1
	portNumber = 2

	workloadKind        = 1
	workloadNamespace   = 2
	workloadName        = 3
	workloadTemplate    = 5
	workloadIPs         = 6
	workloadHostIPs     = 7
	workloadNode        = 8
	workloadPhase       = 9
	workloadTerminating = 11
	workloadUnusual     = 12 // and above: labels of its own, ExternalWorkloads
)

// Endpoint reads a row of the table endpoints.
func (d *Decoder) Endpoint(key string, value []byte) (*Endpoint, error) {
	e := &Endpoint{Key: key, Zone: d.name(nil)}
	c := Common{Slice: e.Zone, Hints: d.hints[:0], Ports: d.ports[:0]}
	for b := value; len(b) > 0; {
		f, rest, ok := next(b)
		if !ok || f.num >= endpointUnusual && f.num != endpointSliceUID {
			return DecodeEndpoint(key, value)
		}
		b = rest
		switch {
		case f.num == endpointReady && f.kind == protowire.VarintType:
			e.Ready = f.number != 0
		case f.kind != protowire.BytesType:
		case f.num != endpointPorts && !utf8.Valid(f.bytes):
			return DecodeEndpoint(key, value)
		case f.num == endpointSlice:
			c.Slice = d.name(f.bytes)
		case f.num == endpointAddress:
			e.Address, _ = addr(same(lastPart(key), f.bytes))
		case f.num == endpointWorkload:
			e.Workload = string(f.bytes)
		case f.num == endpointHostname:
			e.Hostname = string(f.bytes)
		case f.num == endpointZone:
			e.Zone = d.name(f.bytes)
		case f.num == endpointHints:
			c.Hints = append(c.Hints, d.name(f.bytes))
		case f.num == endpointPorts:
			if c.Ports, ok = d.appendPort(c.Ports, f.bytes); !ok {
				return DecodeEndpoint(key, value)
			}
		}
	}
	d.hints, d.ports = c.Hints, c.Ports // to be used again
	if d.common == nil || !d.common.Equal(&c) {
		d.common = &Common{Slice: c.Slice, Hints: append([]Name(nil), c.Hints...), Ports: append([]EndpointPort(nil), c.Ports...)}
	}
	e.Common = d.common
	return e, nil
}

func (d *Decoder) appendPort(to []EndpointPort, b []byte) (_ []EndpointPort, ok bool) {
	name, number := d.name(nil), uint32(0)
	for len(b) > 0 {
		f, rest, ok := next(b)
		if !ok {
			return to, false
		}
		b = rest
		switch {
		case f.num == portName && f.kind == protowire.BytesType:
			if !utf8.Valid(f.bytes) {
				return to, false
			}
			name = d.name(f.bytes)
		case f.num == portNumber && f.kind == protowire.VarintType:
			number = uint32(f.number)
		}
	}
	if n, ok := port(number); ok {
		to = append(to, EndpointPort{Name: name.Value(), Port: n})
	}
	return to, true
}

// Workload reads a row of the table workloads.
func (d *Decoder) Workload(key string, value []byte) (*Workload, error) {
	none := d.name(nil)
	w := &Workload{Key: key, Template: none, Node: none}
	// As parts of the key they cost nothing. What the key escapes is not equal.
	_, rest, _ := strings.Cut(key, "/")
	namespace, name, _ := strings.Cut(rest, "/")
	hosts := d.hosts[:0]
	for b := value; len(b) > 0; {
		f, rest, ok := next(b)
		if !ok || f.num >= workloadUnusual {
			return DecodeWorkload(key, value)
		}
		b = rest
		switch {
		case f.kind == protowire.VarintType:
			switch f.num {
			case workloadKind:
				if f.number == uint64(busv1.Workload_KIND_EXTERNAL) {
					return DecodeWorkload(key, value)
				}
			case workloadPhase:
				w.Phase = phase(busv1.Workload_Phase(int32(f.number)))
			case workloadTerminating:
				w.Terminating = f.number != 0
			}
		case f.kind != protowire.BytesType:
		case !utf8.Valid(f.bytes):
			return DecodeWorkload(key, value)
		case f.num == workloadNamespace:
			w.Namespace = same(namespace, f.bytes)
		case f.num == workloadName:
			w.Name = same(name, f.bytes)
		case f.num == workloadTemplate:
			w.Template = d.name(f.bytes)
		case f.num == workloadIPs:
			if ip, ok := addr(string(f.bytes)); ok {
				w.IPs = append(w.IPs, ip)
			}
		case f.num == workloadHostIPs:
			if len(hosts) > 0 {
				hosts = append(hosts, ',')
			}
			hosts = append(hosts, f.bytes...)
		case f.num == workloadNode:
			w.Node = d.name(f.bytes)
		}
	}
	d.hosts = hosts // to be used again
	w.HostIPs = Addrs{d.name(hosts)}
	return w, nil
}

// field is one field of an encoded message.
type field struct {
	num    protowire.Number
	kind   protowire.Type
	number uint64
	bytes  []byte
}

// next takes the first field. It is not ok with what is malformed or unusual:
// the generated code finds the words for that, or takes it.
func next(b []byte) (f field, rest []byte, ok bool) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return f, nil, false
	}
	f.num, f.kind = num, typ
	b = b[n:]
	switch typ {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	default:
		return f, nil, false
	}
	if n < 0 {
		return f, nil, false
	}
	return f, b[n:], true
}

// same is b as a string, without a copy if that is what part is.
func same(part string, b []byte) string {
	if part == string(b) {
		return part
	}
	return string(b)
}

func lastPart(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
