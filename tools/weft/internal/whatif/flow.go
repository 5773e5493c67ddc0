package whatif

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Flow is traffic that there is or might be: somebody comes to a workload (To), or
// a workload goes to a target (From).
type Flow struct {
	// To is NAMESPACE/POD; an ExternalWorkload is written as external:NAMESPACE/NAME.
	To   string `json:"to,omitempty"`
	Port uint16 `json:"port,omitempty"`
	// Client is what the client's certificate proves; empty if it has none.
	Client string `json:"client,omitempty"`
	// Address of the client; empty if nobody knows it.
	Address string `json:"address,omitempty"`
	// TLS: the client speaks mesh TLS without an identity.
	TLS bool `json:"tls,omitempty"`

	// From is NAMESPACE/POD.
	From string `json:"from,omitempty"`
	// Target is NAME.NAMESPACE.svc[.DOMAIN][:PORT] or IP:PORT.
	Target string `json:"target,omitempty"`

	// Of a request: method and path stand together.
	Method  string            `json:"method,omitempty"`
	Path    string            `json:"path,omitempty"`
	Host    string            `json:"host,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Route is the route that takes its requests now, where they are not known: kind
	// and name, and for From kind, namespace and name.
	Route string `json:"route,omitempty"`
	// Count is how often it was seen; 0 if nobody counted.
	Count uint64 `json:"count,omitempty"`
	// Workload is what the pod belongs to, for people: NAMESPACE/NAME.
	Workload string `json:"workload,omitempty"`
}

// check says what is wrong with a flow that a person wrote.
func (f *Flow) check() error {
	switch {
	case (f.To == "") == (f.From == ""):
		return errors.New("it needs one of to and from")
	case f.To != "" && f.Port == 0:
		return errors.New("port is missing")
	case f.To != "" && f.Target != "":
		return errors.New("target belongs to from")
	case f.From != "" && f.Target == "":
		return errors.New("target is missing")
	case f.From != "" && (f.Port != 0 || f.Client != "" || f.Address != "" || f.TLS):
		return errors.New("port, client, address and tls belong to to")
	case (f.Method == "") != (f.Path == ""):
		return errors.New("method and path stand together")
	case f.Path != "" && !strings.HasPrefix(f.Path, "/"):
		return fmt.Errorf("path %q does not begin with /", f.Path)
	case len(f.Path)+len(f.Host)+len(f.Method) > mostText || len(f.Client) > mostText || len(f.Target) > mostText:
		return fmt.Errorf("it is too long: a request, a client and a target may each have %d bytes", mostText)
	case f.Path == "" && (f.Host != "" || f.Headers != nil):
		return errors.New("host and headers are of a request, which has a method and a path")
	}
	for _, w := range []string{strings.TrimPrefix(f.To, external), f.From} {
		if ns, name, ok := strings.Cut(w, "/"); w != "" && (!ok || ns == "" || name == "" || strings.Contains(name, "/")) {
			return fmt.Errorf("%q is not NAMESPACE/NAME", w)
		}
	}
	if _, err := netip.ParseAddr(f.Address); f.Address != "" && err != nil {
		return fmt.Errorf("address %q is no IP address", f.Address)
	}
	return nil
}

const (
	external = "external:"
	// mostText bounds a text of a flow, in bytes. It is less than the policy service
	// takes of a request.
	mostText = 8 << 10
)

// token names a workload as proxies do.
func token(workload string) string {
	if rest, ok := strings.CutPrefix(workload, external); ok {
		ns, name, _ := strings.Cut(rest, "/")
		raw, err := json.Marshal(map[string]string{"ns": ns, "external_workload": name})
		if err != nil {
			return ""
		}
		return string(raw)
	}
	return strings.Replace(workload, "/", ":", 1)
}

// question is the flow as the policy service asks for it.
func (f *Flow) question() *explainv1.Flow {
	var request *explainv1.HttpRequest
	if f.Path != "" {
		request = &explainv1.HttpRequest{Method: f.Method, Path: f.Path, Host: f.Host}
		for name, value := range f.Headers {
			request.Headers = append(request.Headers, &explainv1.Header{Name: name, Value: value})
		}
		slices.SortFunc(request.Headers, func(a, b *explainv1.Header) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
	if f.From != "" {
		return &explainv1.Flow{Route: f.Route, Direction: &explainv1.Flow_Outbound{Outbound: &explainv1.ExplainOutboundRequest{
			SourceWorkload: token(f.From), Target: f.Target, Request: request,
		}}}
	}
	return &explainv1.Flow{Route: f.Route, Direction: &explainv1.Flow_Inbound{Inbound: &explainv1.ExplainInboundRequest{
		Workload: token(f.To), Port: uint32(f.Port), ClientAddress: f.Address, ClientIdentity: f.Client, ClientTls: f.TLS, Request: request,
	}}}
}

// ParseFlows reads flows that a person wrote: JSON objects one behind the other,
// or lists of them.
func ParseFlows(source string, text []byte) ([]Flow, error) {
	wrong := func(n int, err error) error {
		return &say.Problem{
			Code: usage.Exit, What: fmt.Sprintf("%s, flow %d: %v", source, n, err), Err: err,
			Next: `write flows as {"to":"NAMESPACE/POD","port":8080,"client":"…"} or {"from":"NAMESPACE/POD","target":"NAME.NAMESPACE.svc:80","method":"GET","path":"/"}`,
		}
	}
	var out []Flow
	in := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		err := in.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, wrong(len(out)+1, err)
		}
		list := []json.RawMessage{raw}
		if raw[0] == '[' {
			list = nil
			if err := json.Unmarshal(raw, &list); err != nil {
				return nil, wrong(len(out)+1, err)
			}
		}
		for _, one := range list {
			var f Flow
			strict := json.NewDecoder(bytes.NewReader(one))
			strict.DisallowUnknownFields()
			if err := strict.Decode(&f); err != nil {
				return nil, wrong(len(out)+1, err)
			}
			if err := f.check(); err != nil {
				return nil, wrong(len(out)+1, err)
			}
			out = append(out, f)
		}
	}
}
