package shape

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// ServiceOf names the Service that a slice belongs to: by its label, else by an
// owner of kind Service; "" when it belongs to none.
func ServiceOf(es *discoveryv1.EndpointSlice) string {
	if name := es.Labels[labelServiceName]; name != "" {
		return name
	}
	for _, o := range es.OwnerReferences {
		if o.Kind == string(Service) {
			return o.Name
		}
	}
	return ""
}

// sliceRows makes one row for each address of a slice. An address that is none
// is left out and named, the others stay (spec section 2.7).
func sliceRows(es *discoveryv1.EndpointSlice) (rows []Row, partly *Problem, wrong *Problem) {
	service := ServiceOf(es)
	if service == "" || es.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil, nil
	}
	ports, wrong := slicePorts(es)
	if wrong != nil {
		return nil, nil, wrong
	}
	at := make(map[string]int) // address -> place in rows
	for i := range es.Endpoints {
		e := &es.Endpoints[i]
		workload, ok := targetOf(es, e.TargetRef)
		if !ok {
			continue
		}
		for j, text := range e.Addresses {
			addr, err := netip.ParseAddr(text)
			if err != nil || addr.Zone() != "" {
				if partly == nil {
					partly = problem(EndpointSlice, es, "endpoints["+strconv.Itoa(i)+"].addresses["+strconv.Itoa(j)+"]",
						"%s is not an IP address; the other addresses are used", quote(text))
				}
				continue
			}
			row := endpointRow(es, e, addr)
			row.Service, row.Workload, row.Ports = service, workload, ports
			if workload == "" {
				row.GatewayIdentity = es.Annotations[annotationGatewayIdentity]
				row.Authority = es.Annotations[annotationRemoteService]
				row.TargetCluster = es.Labels[LabelClusterName]
				row.InboundPort = inboundPort(es)
			}
			key := bus.Key(row.Namespace, row.Service, row.Slice, row.Address)
			if k, twice := at[row.Address]; twice {
				// A pod that was replaced while it kept its address: what is ready wins.
				if old := rows[k].Message.(*busv1.Endpoint); row.Ready && !old.Ready {
					rows[k].Message = row
				}
				continue
			}
			at[row.Address] = len(rows)
			rows = append(rows, Row{busv1.Table_TABLE_ENDPOINTS, key, row})
		}
	}
	return rows, partly, nil
}

func endpointRow(es *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, addr netip.Addr) *busv1.Endpoint {
	row := &busv1.Endpoint{
		Namespace:   es.Namespace,
		Slice:       es.Name,
		SliceUid:    string(es.UID),
		Address:     addr.String(),
		Ipv6:        addr.Is6() && !addr.Is4In6(),
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
		Hostname:    deref(e.Hostname),
		Node:        deref(e.NodeName),
		Zone:        deref(e.Zone),
	}
	// The API's rule: an absent serving means the same as ready.
	row.Serving = row.Ready
	if e.Conditions.Serving != nil {
		row.Serving = *e.Conditions.Serving
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			row.ZoneHints = append(row.ZoneHints, z.Name)
		}
		slices.Sort(row.ZoneHints)
		row.ZoneHints = slices.Compact(row.ZoneHints)
	}
	return row
}

// inboundPort reads the annotation of a mirrored slice; 0 when it is absent or
// no port, since then a client connects to the address as it is.
func inboundPort(es *discoveryv1.EndpointSlice) uint32 {
	port, err := strconv.ParseUint(es.Annotations[annotationInboundPort], 10, 16)
	if err != nil {
		return 0
	}
	return uint32(port)
}

// targetOf is the key of the workload behind an address; "" for an address on
// its own. ok is false for a target of a kind that no proxy can be told of.
func targetOf(es *discoveryv1.EndpointSlice, ref *corev1.ObjectReference) (key string, ok bool) {
	if ref == nil {
		return "", true
	}
	namespace := ref.Namespace
	if namespace == "" {
		namespace = es.Namespace
	}
	switch ref.Kind {
	case string(Pod):
		return WorkloadKey(busv1.Workload_KIND_POD, namespace, ref.Name), true
	case string(ExternalWorkloads):
		return WorkloadKey(busv1.Workload_KIND_EXTERNAL, namespace, ref.Name), true
	}
	return "", false
}

func slicePorts(es *discoveryv1.EndpointSlice) ([]*busv1.EndpointPort, *Problem) {
	var out []*busv1.EndpointPort
	for i, p := range es.Ports {
		if p.Port == nil {
			continue
		}
		if !validPort(int64(*p.Port)) {
			return nil, problem(EndpointSlice, es, "ports["+strconv.Itoa(i)+"].port", "%d is not between 1 and 65535", *p.Port)
		}
		out = append(out, &busv1.EndpointPort{Name: deref(p.Name), Port: uint32(*p.Port)})
	}
	sortPorts(out)
	return out, nil
}

// sortPorts makes the order of a slice's ports mean nothing, as nobody reads it.
func sortPorts(ports []*busv1.EndpointPort) {
	slices.SortFunc(ports, func(a, b *busv1.EndpointPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
	})
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
