package diag

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const inboundMethod = "/weft.explain.v1.InboundService/ExplainInbound"

// clientFlags are what is known of a client, beside what its pod says.
type clientFlags struct {
	address, identity string
	tls               bool
}

func (f *clientFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&f.address, "client-address", "", "IP address of the client (default: the pod's)")
	fs.StringVar(&f.identity, "client-identity", "", "what the client's certificate proves (default: what the pod's proxy has)")
	fs.BoolVar(&f.tls, "client-tls", false, "the client speaks mesh TLS, without an identity")
}

// inbound asks whether a client may come in at a port of a workload.
func (q *question) inbound(ctx context.Context, cmd *cobra.Command, open connect, client, destination string) error {
	target, portText, ok := cutLast(destination, ":")
	port, err := strconv.ParseUint(portText, 10, 16)
	if !ok || err != nil || port == 0 {
		return usage.Error(cmd, fmt.Sprintf("%q is no port of a workload: write KIND/NAME:PORT", destination))
	}
	request, err := q.request.read(cmd)
	if err != nil {
		return err
	}
	req := &explainv1.ExplainInboundRequest{
		Port: uint32(port), ClientAddress: q.client.address, ClientIdentity: q.client.identity, ClientTls: q.client.tls, Request: request,
	}
	if req.Workload, err = q.workload(ctx, cmd, open, target); err != nil {
		return err
	}
	if err := q.comer(ctx, cmd, open, client, req); err != nil {
		return err
	}
	if _, err := netip.ParseAddr(req.GetClientAddress()); err != nil {
		return usage.Error(cmd, fmt.Sprintf("the client's address is %q; name it with --client-address", req.GetClientAddress()))
	}
	conn, err := q.policyConn(ctx, cmd, open)
	if err != nil {
		return err
	}
	defer conn.Close()
	resp := &explainv1.ExplainInboundResponse{}
	if err := conn.Invoke(ctx, inboundMethod, req, resp); err != nil {
		return explain("asking who may come in at "+destination, err)
	}
	if q.format == "json" {
		return readable(cmd.OutOrStdout(), q.format, resp)
	}
	return writeVerdict(cmd.OutOrStdout(), req, resp)
}

// workload names one pod of a workload as proxies name themselves: the pods of one
// workload have one policy, but for their own labels.
func (q *question) workload(ctx context.Context, cmd *cobra.Command, open connect, text string) (string, error) {
	ns, r, err := q.resource(text)
	if err != nil {
		return "", err
	}
	if q.policyServer != "" {
		if r.gvr != kube.Pods {
			return "", usage.Error(cmd, "with --policy-server, the workload must be a pod: without Kubernetes nothing else has pods")
		}
		return ns + ":" + r.object, nil
	}
	p, err := q.one(ctx, cmd, open, ns, r)
	if err != nil {
		return "", err
	}
	return p.Namespace + ":" + p.Name, nil
}

// comer fills in who comes, as far as flags don't say.
func (q *question) comer(ctx context.Context, cmd *cobra.Command, open connect, text string, req *explainv1.ExplainInboundRequest) error {
	if text == "-" {
		return nil
	}
	ns, r, err := q.resource(text)
	if err != nil || q.policyServer != "" {
		return err
	}
	p, err := q.one(ctx, cmd, open, ns, r)
	if err != nil {
		return err
	}
	req.ClientAddress = cmp.Or(req.GetClientAddress(), p.Status.PodIP)
	if req.GetClientIdentity() == "" && !req.GetClientTls() {
		req.ClientIdentity = Identity(p)
	}
	return nil
}

func (q *question) one(ctx context.Context, cmd *cobra.Command, open connect, ns string, r resource) (*corev1.Pod, error) {
	door, _, err := open(cmd)
	if err != nil {
		return nil, err
	}
	pods, err := podsOf(ctx, door, ns, r)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, &say.Problem{What: fmt.Sprintf("%s %s/%s has no pods", r.name, ns, r.object), Next: "name a workload that runs"}
	}
	return &pods[0], nil
}

// Identity is what a pod's proxy proves to be; empty if it does not say.
func Identity(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, e := range c.Env {
			if e.Name == "LINKERD2_PROXY_IDENTITY_LOCAL_NAME" {
				return strings.NewReplacer("$(_pod_sa)", cmp.Or(p.Spec.ServiceAccountName, "default"), "$(_pod_ns)", p.Namespace).Replace(e.Value)
			}
		}
	}
	return ""
}

// writeVerdict writes what becomes of a client, and why.
func writeVerdict(w io.Writer, req *explainv1.ExplainInboundRequest, resp *explainv1.ExplainInboundResponse) error {
	var out bytes.Buffer
	who := cmp.Or(req.GetClientIdentity(), "somebody without identity")
	outcome := map[explainv1.Outcome]string{
		explainv1.Outcome_OUTCOME_ALLOWED: "may come in", explainv1.Outcome_OUTCOME_DENIED: "is denied", explainv1.Outcome_OUTCOME_NO_ROUTE: "gets 404",
	}[resp.GetOutcome()]
	fmt.Fprintf(&out, "%s, from %s, %s at %s port %d\n", plain.Line(who), plain.Line(req.GetClientAddress()), outcome, plain.Line(req.GetWorkload()), req.GetPort())
	by := []string{plain.Line(resp.GetServer())}
	for _, more := range []string{resp.GetRoute(), resp.GetBy()} {
		// A default policy stands for the Server and for the rule, too.
		if more = plain.Line(more); more != "" && !slices.Contains(by, more) {
			by = append(by, more)
		}
	}
	fmt.Fprintf(&out, "   by %s\n", strings.Join(by, ", "))
	if resp.GetReason() != "" {
		fmt.Fprintf(&out, "   %s\n", plain.Line(resp.GetReason()))
	}
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, r := range resp.GetRules() {
		fmt.Fprintf(table, "   %s\t%s\n", plain.Line(r.GetName()), plain.Line(cmp.Or(r.GetReason(), "lets it in")))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("laying out the rules: %w", err)
	}
	if err := writeReasons(&out, resp.GetRoutes(), "takes the request"); err != nil {
		return err
	}
	for _, i := range resp.GetIgnored() {
		fmt.Fprintf(&out, "not used: %s\n", plain.Line(i))
	}
	fmt.Fprintf(&out, "as of epoch %d, sequence %d of the log\n", resp.GetEpoch(), resp.GetSeq())
	return write(w, "", out.Bytes())
}

// cutLast cuts at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
