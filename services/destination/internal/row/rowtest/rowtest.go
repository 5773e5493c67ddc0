// Package rowtest writes rows of the log as lines of text, for tests that a
// newcomer can read:
//
//	node vm-a zone=west-1
//	template grove/t owner=deployment/plum sa=picker mesh=linkerd proxy=4143/4191/4190 label:app=plum port=web:80
//	pod grove/plum-0 template=grove/t ip=10.0.0.1 node=vm-a
//	external grove/vm template=grove/vm ip=192.0.2.1 identity=spiffe://x/vm sni=vm.local
//	service grove/plum ip=10.96.0.1 port=:8400 annotation:config.linkerd.io/opaque-ports=
//	endpoint grove/plum/plum-v4/10.0.0.1 pod=grove/plum-0 port=:8400 hint=west-1
//	server grove/srv pods:app=plum port=8400 protocol=opaque
//	profile grove/plum.grove.svc.cluster.local {"routes":[{"name":"pick","condition":{"method":"GET"}}]}
//	split grove/canary {"service":"plum","backends":[{"authority":"fig","weightMilli":500}]}
//	cluster east domain=east.local trust=east.trust
//	delete pod grove/plum-0
//
// What follows a profile or a split is its row as JSON, without spaces. Elsewhere
// a word is key=value or a switch; "phase" defaults to running and an endpoint is
// ready unless it says "unready". Lines that start with # are comments.
package rowtest

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Parse reads rows, one a line.
func Parse(text string) ([]bus.Change, error) {
	var changes []bus.Change
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		c, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d (%s): %w", n+1, line, err)
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// words are what follows a row's kind and key.
type words struct {
	all  [][2]string // key, value
	used map[int]bool
}

func (w *words) list(key string) []string {
	var out []string
	for i, kv := range w.all {
		if kv[0] == key {
			w.used[i] = true
			out = append(out, kv[1])
		}
	}
	return out
}

func (w *words) one(key string) string {
	if list := w.list(key); len(list) > 0 {
		return list[len(list)-1]
	}
	return ""
}

func (w *words) has(key string) bool { return len(w.list(key)) > 0 }

// prefixed collects words such as label:app=plum.
func (w *words) prefixed(prefix string) map[string]string {
	var out map[string]string
	for i, kv := range w.all {
		if rest, ok := strings.CutPrefix(kv[0], prefix+":"); ok {
			if out == nil {
				out = make(map[string]string)
			}
			out[rest] = kv[1]
			w.used[i] = true
		}
	}
	return out
}

func parseLine(line string) (bus.Change, error) {
	fields := strings.Fields(line)
	remove := fields[0] == "delete"
	if remove {
		fields = fields[1:]
	}
	if len(fields) < 2 {
		return bus.Change{}, fmt.Errorf("want a kind and a key")
	}
	w := &words{used: make(map[int]bool)}
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		w.all = append(w.all, [2]string{key, value})
	}
	parts := strings.Split(fields[1], "/")
	table, parts, m, err := row(fields[0], parts, w)
	if err != nil {
		return bus.Change{}, err
	}
	for i, kv := range w.all {
		if !w.used[i] {
			return bus.Change{}, fmt.Errorf("%s does not know the word %q", fields[0], kv[0])
		}
	}
	c := bus.Change{Table: table, Key: bus.Key(parts...)}
	if !remove {
		c.Value = bus.Encode(m)
	}
	return c, nil
}

func row(kind string, parts []string, w *words) (busv1.Table, []string, proto.Message, error) {
	want := map[string]int{"node": 1, "cluster": 1, "endpoint": 4}[kind]
	if want == 0 {
		want = 2
	}
	if len(parts) != want {
		return 0, nil, nil, fmt.Errorf("the key of a %s has %d parts", kind, want)
	}
	switch kind {
	case "node":
		return busv1.Table_TABLE_NODES, parts, &busv1.Node{Name: parts[0], Zone: w.one("zone")}, nil
	case "template":
		return busv1.Table_TABLE_TEMPLATES, parts, template(parts, w), nil
	case "pod":
		return busv1.Table_TABLE_WORKLOADS, append([]string{"pod"}, parts...), workload(parts, w, busv1.Workload_KIND_POD), nil
	case "external":
		return busv1.Table_TABLE_WORKLOADS, append([]string{"external"}, parts...), workload(parts, w, busv1.Workload_KIND_EXTERNAL), nil
	case "service":
		return busv1.Table_TABLE_SERVICES, parts, service(parts, w), nil
	case "endpoint":
		return busv1.Table_TABLE_ENDPOINTS, parts, endpoint(parts, w), nil
	case "server":
		return busv1.Table_TABLE_SERVERS, parts, server(parts, w), nil
	case "profile":
		p := &busv1.ServiceProfile{}
		err := w.json(p)
		p.Namespace, p.Name = parts[0], parts[1]
		return busv1.Table_TABLE_SERVICE_PROFILES, parts, p, err
	case "split":
		s := &busv1.TrafficSplit{}
		err := w.json(s)
		s.Namespace, s.Name = parts[0], parts[1]
		return busv1.Table_TABLE_TRAFFIC_SPLITS, parts, s, err
	case "cluster":
		return busv1.Table_TABLE_CLUSTERS, parts, &busv1.Cluster{Name: parts[0], Domain: w.one("domain"), TrustDomain: w.one("trust")}, nil
	default:
		return 0, nil, nil, fmt.Errorf("no row is called %q", kind)
	}
}

// json reads the one word there is, if there is one.
func (w *words) json(into proto.Message) error {
	if len(w.all) == 0 {
		return nil
	}
	w.used[0] = true
	text := w.all[0][0]
	if w.all[0][1] != "" {
		text += "=" + w.all[0][1]
	}
	return protojson.Unmarshal([]byte(text), into)
}

func number(text string) uint32 {
	n, _ := strconv.ParseUint(text, 10, 32) // 0 is a number nobody uses
	return uint32(n)
}

func template(parts []string, w *words) *busv1.Template {
	owner, ownerName, _ := strings.Cut(w.one("owner"), "/")
	t := &busv1.Template{
		Namespace: parts[0], ServiceAccount: w.one("sa"), ControlPlaneNamespace: w.one("mesh"),
		Owner:  &busv1.Owner{Kind: owner, Name: ownerName},
		Labels: w.prefixed("label"), Annotations: w.prefixed("annotation"), HostNetwork: w.has("hostnetwork"),
	}
	for _, p := range w.list("port") { // name:port[:host]
		f := append(strings.Split(p, ":"), "", "")
		t.Ports = append(t.Ports, &busv1.Port{Container: "main", Name: f[0], Port: number(f[1]), HostPort: number(f[2]), Protocol: "TCP"})
	}
	if w.has("proxy") {
		f := append(strings.Split(w.one("proxy"), "/"), "", "")
		t.Proxy = &busv1.Proxy{InboundPort: number(f[0]), AdminPort: number(f[1]), ControlPort: number(f[2])}
	}
	return t
}

func workload(parts []string, w *words, kind busv1.Workload_Kind) *busv1.Workload {
	m := &busv1.Workload{
		Kind: kind, Namespace: parts[0], Name: parts[1], Uid: w.one("uid"),
		Ips: w.list("ip"), HostIps: w.list("hostip"), Node: w.one("node"), Labels: w.prefixed("label"),
		Phase: busv1.Workload_PHASE_RUNNING, Ready: true, Terminating: w.has("terminating"),
	}
	if key := w.one("template"); key != "" {
		m.Template = bus.Key(strings.Split(key, "/")...)
	}
	switch w.one("phase") {
	case "pending":
		m.Phase, m.Ready = busv1.Workload_PHASE_PENDING, false
	case "ended":
		m.Phase, m.Ready = busv1.Workload_PHASE_ENDED, false
	}
	if kind == busv1.Workload_KIND_EXTERNAL {
		m.External = &busv1.External{Identity: w.one("identity"), ServerName: w.one("sni")}
	}
	return m
}

func service(parts []string, w *words) *busv1.Service {
	s := &busv1.Service{
		Namespace: parts[0], Name: parts[1], ClusterIps: w.list("ip"),
		ExternalName: w.has("externalname"), InternalTrafficLocal: w.has("local"),
		Annotations: w.prefixed("annotation"), Labels: w.prefixed("label"), Uid: w.one("uid"),
	}
	for _, p := range w.list("port") { // name:port
		name, port, _ := strings.Cut(p, ":")
		s.Ports = append(s.Ports, &busv1.ServicePort{Name: name, Port: number(port), Protocol: "TCP"})
	}
	return s
}

func endpoint(parts []string, w *words) *busv1.Endpoint {
	e := &busv1.Endpoint{
		Namespace: parts[0], Service: parts[1], Slice: parts[2], Address: parts[3], Ipv6: strings.Contains(parts[3], ":"),
		Ready: !w.has("unready"), Hostname: w.one("host"), Zone: w.one("zone"), ZoneHints: w.list("hint"),
		GatewayIdentity: w.one("gateway"), Authority: w.one("authority"), TargetCluster: w.one("cluster"),
		InboundPort: inbound(w.one("inbound")), SliceUid: w.one("uid"),
	}
	if key := w.one("pod"); key != "" {
		e.Workload = bus.Key(append([]string{"pod"}, strings.Split(key, "/")...)...)
	}
	if key := w.one("external"); key != "" {
		e.Workload = bus.Key(append([]string{"external"}, strings.Split(key, "/")...)...)
	}
	for _, p := range w.list("port") { // name:port
		name, port, _ := strings.Cut(p, ":")
		e.Ports = append(e.Ports, &busv1.EndpointPort{Name: name, Port: number(port)})
	}
	return e
}

func server(parts []string, w *words) *busv1.Server {
	s := &busv1.Server{Namespace: parts[0], Name: parts[1], Port: number(w.one("port")), ProxyProtocol: w.one("protocol")}
	if s.GetPort() == 0 {
		s.PortName = w.one("port")
	}
	if pods := w.prefixed("pods"); pods != nil {
		s.Pods = &busv1.Selector{MatchLabels: pods}
	}
	if w.has("pods") {
		s.Pods = &busv1.Selector{}
	}
	if externals := w.prefixed("externals"); externals != nil {
		s.ExternalWorkloads = &busv1.Selector{MatchLabels: externals}
	}
	return s
}

func inbound(text string) uint32 {
	port, _ := strconv.ParseUint(text, 10, 16)
	return uint32(port)
}
