package diag

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const outboundMethod = "/weft.explain.v1.OutboundService/ExplainOutbound"

// requestFlags are what a client asks for.
type requestFlags struct {
	method, path, host string
	headers            []string
}

func (f *requestFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.method, "method", "GET", "method of the request; a gRPC call is a POST")
	fs.StringVar(&f.path, "path", "", "path of the request, with or without a query; of a gRPC call /SERVICE/METHOD")
	fs.StringVar(&f.host, "host", "", "host name of the request")
	fs.StringArrayVar(&f.headers, "header", nil, "a header of the request: NAME: VALUE")
}

// read makes the request; nil if there is none.
func (f *requestFlags) read(cmd *cobra.Command) (*explainv1.HttpRequest, error) {
	switch {
	case f.path == "" && (f.host != "" || len(f.headers) > 0 || cmd.Flags().Changed("method")):
		return nil, usage.Error(cmd, "--method, --host and --header are of a request; name its --path, too")
	case f.path == "":
		return nil, nil //nolint:nilnil // nil is a connection
	case !strings.HasPrefix(f.path, "/"):
		return nil, usage.Error(cmd, fmt.Sprintf("--path %q does not begin with /", f.path))
	}
	out := &explainv1.HttpRequest{Method: f.method, Path: f.path, Host: f.host}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, usage.Error(cmd, fmt.Sprintf("--header %q is not NAME: VALUE", h))
		}
		out.Headers = append(out.Headers, &explainv1.Header{Name: name, Value: strings.TrimSpace(value)})
	}
	return out, nil
}

// policyConn connects to a policy service.
func (q *question) policyConn(ctx context.Context, cmd *cobra.Command, open connect) (*grpc.ClientConn, error) {
	if q.policyServer != "" {
		conn, err := grpc.NewClient(q.policyServer, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
		if err != nil {
			return nil, fmt.Errorf("making a client of %s: %w", q.policyServer, err)
		}
		return conn, nil
	}
	door, mesh, err := open(cmd)
	if err != nil {
		return nil, err
	}
	return PolicyAPI(ctx, door, mesh, q.policyPod)
}

// routes asks which route takes a request. It is the second half of an answer: if
// there is none, reason says why.
func (q *question) routes(ctx context.Context, cmd *cobra.Command, open connect, req *explainv1.ExplainOutboundRequest) (resp *explainv1.ExplainOutboundResponse, reason string) {
	if q.server != "" && q.policyServer == "" {
		return nil, "not asked for: name a policy service with --policy-server"
	}
	conn, err := q.policyConn(ctx, cmd, open)
	if err != nil {
		return nil, err.Error()
	}
	defer conn.Close()
	resp = &explainv1.ExplainOutboundResponse{}
	switch err := conn.Invoke(ctx, outboundMethod, req, resp); status.Code(err) {
	case codes.OK:
		return resp, ""
	case codes.Unimplemented:
		return nil, "the control plane's policy service does not explain them"
	default:
		return nil, status.Convert(err).Message()
	}
}

// writeRoutes writes which route takes the request, and why the others don't.
func writeRoutes(w io.Writer, resp *explainv1.ExplainOutboundResponse, reason string) error {
	var out bytes.Buffer
	if resp == nil {
		fmt.Fprintf(&out, "routes: %s\n", plain.Line(reason))
		return write(w, "", out.Bytes())
	}
	fmt.Fprintf(&out, "\n%s, protocol %s", plain.Line(resp.GetParent()), plain.Line(resp.GetProtocol()))
	if resp.GetRoute() != "" {
		fmt.Fprintf(&out, ": %s takes it", plain.Line(resp.GetRoute()))
	}
	out.WriteByte('\n')
	for _, d := range resp.GetDoes() {
		fmt.Fprintf(&out, "   %s\n", plain.Line(d))
	}
	if resp.GetReason() != "" {
		fmt.Fprintf(&out, "   %s\n", plain.Line(resp.GetReason()))
	}
	if err := writeReasons(&out, resp.GetRoutes(), "takes it"); err != nil {
		return err
	}
	for _, i := range resp.GetIgnored() {
		fmt.Fprintf(&out, "not used, or not whole: %s\n", plain.Line(i))
	}
	return write(w, "", out.Bytes())
}

func writeReasons(out *bytes.Buffer, routes []*explainv1.RouteReason, takes string) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range routes {
		reason := r.GetReason()
		if reason == "" {
			reason = takes
		}
		fmt.Fprintf(table, "   %s\t%s\n", plain.Line(r.GetName()), plain.Line(reason))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("laying out the routes: %w", err)
	}
	return nil
}

// writeBoth writes the steps, with the routes beside them, as JSON.
func writeBoth(w io.Writer, steps *explainv1.ExplainResponse, routes *explainv1.ExplainOutboundResponse, reason string) error {
	raw, err := protojson.Marshal(steps)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	both := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &both); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if routes != nil {
		both["routes"], err = protojson.Marshal(routes)
	} else {
		both["routes"], err = json.Marshal(map[string]string{"reason": reason})
	}
	if err != nil {
		return fmt.Errorf("encoding the routes: %w", err)
	}
	text, err := json.MarshalIndent(both, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	return write(w, "", append(text, '\n'))
}
