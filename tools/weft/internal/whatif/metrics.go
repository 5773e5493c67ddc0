package whatif

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// inboundFamilies count who came in, and who did not. Proxies drop their series
// when nothing has happened for a while (ten minutes by default): what is left is
// recent. Source: spec/proxy.md §15.2.
var inboundFamilies = []string{
	"inbound_http_authz_allow_total", "inbound_http_authz_deny_total",
	"inbound_tcp_authz_allow_total", "inbound_tcp_authz_deny_total",
}

// outboundFamilies count by route where requests went (spec/proxy.md §15.4).
var outboundFamilies = []string{
	"outbound_http_route_request_statuses_total", "outbound_grpc_route_request_statuses_total",
	outboundBytes, "outbound_tls_route_open_total",
}

// outboundBytes counts connections that are neither HTTP nor TLS with a server name.
const outboundBytes = "outbound_tcp_route_open_total"

// flowsOf reads the flows from the metrics of the proxy of pod, NAMESPACE/NAME.
// What does not say enough is left out, and so is what has not happened: proxies
// show some series, such as those of a route's connections, before their first.
func flowsOf(pod string, page []byte) ([]Flow, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	var out []Flow
	at := map[string]int{}
	add := func(f Flow, n uint64) {
		if n == 0 {
			return
		}
		key := fmt.Sprint(f) // without a count yet
		if i, ok := at[key]; ok {
			out[i].Count += n
			return
		}
		at[key] = len(out)
		f.Count = n
		out = append(out, f)
	}
	for _, name := range inboundFamilies {
		for _, m := range families[name].GetMetric() {
			if f, ok := inbound(pod, labels(m)); ok {
				add(f, count(m))
			}
		}
	}
	for _, name := range outboundFamilies {
		for _, m := range families[name].GetMetric() {
			if f, ok := outbound(pod, labels(m)); ok {
				if name == outboundBytes {
					f.Route = "" // bytes choose no route: the first that the policy then has takes them
				}
				add(f, count(m))
			}
		}
	}
	slices.SortFunc(out, order)
	return out, nil
}

func inbound(pod string, l map[string]string) (Flow, bool) {
	port, err := strconv.ParseUint(l["target_port"], 10, 16)
	if err != nil || port == 0 {
		return Flow{}, false
	}
	f := Flow{To: pod, Port: uint16(port), Client: l["client_id"], TLS: l["tls"] == "true" && l["client_id"] == ""}
	if l["route_name"] != "" {
		f.Route = cmp.Or(l["route_kind"], "default") + " " + l["route_name"]
	}
	// Only the pod itself, and who forwards a port into it, come to these addresses;
	// policies let them in.
	if to := l["target_ip"]; to == "127.0.0.1" || to == "::1" {
		f.Address = to
	}
	return f, true
}

// outbound reads a flow to a Service; where an address outside the cluster is
// behind a parent, the metrics don't say which.
func outbound(pod string, l map[string]string) (Flow, bool) {
	if l["parent_kind"] != "Service" || l["parent_name"] == "" || l["parent_namespace"] == "" {
		return Flow{}, false
	}
	port, err := strconv.ParseUint(l["parent_port"], 10, 16)
	if err != nil || port == 0 {
		return Flow{}, false
	}
	f := Flow{From: pod, Target: fmt.Sprintf("%s.%s.svc:%d", l["parent_name"], l["parent_namespace"], port)}
	switch {
	case l["route_name"] == "":
	case l["route_namespace"] == "":
		f.Route = "default " + l["route_name"]
	default:
		f.Route = l["route_kind"] + " " + l["route_namespace"] + "/" + l["route_name"]
	}
	return f, true
}

func labels(m *dto.Metric) map[string]string {
	out := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

func count(m *dto.Metric) uint64 {
	v := m.GetCounter().GetValue()
	if m.GetUntyped() != nil {
		v = m.GetUntyped().GetValue()
	}
	if !(v >= 0 && v < 1<<63) {
		return 0
	}
	return uint64(v)
}

func order(a, b Flow) int {
	return cmp.Or(
		strings.Compare(a.To, b.To), cmp.Compare(a.Port, b.Port), strings.Compare(a.Client, b.Client), strings.Compare(a.Address, b.Address),
		compareBools(a.TLS, b.TLS), strings.Compare(a.From, b.From), strings.Compare(a.Target, b.Target), strings.Compare(a.Route, b.Route),
		strings.Compare(a.Method, b.Method), strings.Compare(a.Path, b.Path), strings.Compare(a.Host, b.Host),
	)
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
