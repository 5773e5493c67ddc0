// Package whatif is `weft policy check`: which of the flows that proxies have seen
// would fare otherwise if manifests were applied or objects deleted. It changes
// nothing: a policy server judges each flow by its tables, and by a copy of them to
// which the manifests are applied.
package whatif

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	explainv1 "github.com/weftmesh/weft/proto/gen/weft/explain/v1"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/diag"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const (
	exitChange = 1
	askTime    = 2 * time.Minute
	// mostFlows is what a policy server judges at once.
	mostFlows = 10_000
	// mostWrong bounds how many mistakes are told at once.
	mostWrong = 20
)

// settings are the command line.
type settings struct {
	files, deleted, proxies                   []string
	flows, namespace, of, server, pod, format string
	all                                       bool
}

// connect opens the door that a command's flags name, and says where the control
// plane is.
type connect func(cmd *cobra.Command) (diag.Door, string, error)

// Command returns `weft policy` with its sub-commands.
func Command() *cobra.Command {
	return command(func(cmd *cobra.Command) (diag.Door, string, error) {
		flags := kube.From(cmd)
		client, err := flags.Connect()
		if err != nil {
			return nil, "", err
		}
		return client, flags.Mesh, nil
	})
}

func command(open connect) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "See what policies would do before they are applied",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(check(open))
	return cmd
}

func check(open connect) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "check -f FILE",
		Short: "List the flows that would fare otherwise if manifests were applied",
		Long: `List which of the recent flows would change verdict if manifests were applied, or
objects deleted: who comes in or not, and which route takes a request. Nothing is
applied. Flows come from the metrics of the cluster's proxies, or from a file.

Policies, routes, EgressNetworks, ReferenceGrants and Services are judged together,
as one apply would bring them; ServiceProfiles only for mistakes; pods and
workloads not at all. What a proxy has seen tells no paths: there the route that took the requests
is judged, and where that goes the verdict is unknown. Requests to addresses outside
the cluster are only in flow files.

Exit codes: 0 nothing changes, 1 something does (or could not be asked), 64 what
would be applied is wrong, or the command line.`,
		Example: `  weft policy check -f door.yaml
  weft policy check -f policies/ --delete AuthorizationPolicy/shop/everyone --all -o json
  weft policy check -f door.yaml --flows flows.json
  weft policy check -f door.yaml --server 127.0.0.1:8090 --proxy shop/web-0=127.0.0.1:4191`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage.Error(cmd, fmt.Sprintf("argument %q is one too many", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd, open) },
	}
	fs := cmd.Flags()
	fs.StringArrayVarP(&s.files, "filename", "f", nil, "manifests that would be applied: a file, a directory, a URL, or - for standard input")
	fs.StringArrayVar(&s.deleted, "delete", nil, "an object that would be deleted: KIND[.GROUP]/[NAMESPACE/]NAME")
	fs.StringVarP(&s.namespace, "namespace", "n", "default", "namespace of objects that do not say theirs")
	fs.StringVar(&s.of, "of", "", "namespace whose proxies are asked for flows (default: all)")
	fs.StringVar(&s.flows, "flows", "", "file of flows to judge instead of those of the proxies")
	fs.StringVar(&s.server, "server", "", "HOST:PORT of a policy service to ask, without Kubernetes")
	fs.StringArrayVar(&s.proxies, "proxy", nil, "with --server, a proxy to ask for flows: NAMESPACE/POD=HOST:PORT of its admin port")
	fs.StringVar(&s.pod, "policy-pod", "", "pod of the control plane to ask (default: one that is ready)")
	fs.BoolVar(&s.all, "all", false, "list also what does not change")
	fs.StringVarP(&s.format, "output", "o", "table", "how to write the answer: table or json")
	return cmd
}

func (s *settings) run(cmd *cobra.Command, open connect) error {
	switch {
	case s.format != "table" && s.format != "json":
		return usage.Error(cmd, fmt.Sprintf("--output %q is neither table nor json", s.format))
	case len(s.files)+len(s.deleted) == 0:
		return usage.Error(cmd, "nothing is named that would be applied or deleted")
	case times(s.files, "-") > 1:
		return usage.Error(cmd, "-f - is named more than once, and standard input can be read once only")
	case s.server != "" && s.flows == "" && len(s.proxies) == 0:
		return usage.Error(cmd, "with --server, flows come from --flows or from each --proxy")
	case s.server == "" && len(s.proxies) > 0:
		return usage.Error(cmd, "--proxy needs --server: with Kubernetes, proxies are found there")
	}
	for _, p := range s.proxies {
		pod, address, ok := strings.Cut(p, "=")
		if ns, name, two := strings.Cut(pod, "/"); !ok || !two || ns == "" || name == "" || address == "" {
			return usage.Error(cmd, fmt.Sprintf("--proxy %q is not NAMESPACE/POD=HOST:PORT", p))
		}
	}
	all, notes, err := s.candidates(cmd)
	if err != nil {
		return err
	}
	conn, found, err := s.reach(cmd, open)
	if err != nil {
		return err
	}
	defer conn.Close()
	if found.asked > 0 && len(found.silent) == found.asked {
		return &say.Problem{What: "no proxy tells its flows", Why: strings.Join(found.silent[:min(len(found.silent), mostWrong)], "\n"), Next: "name flows with --flows; see `weft check --proxy`"}
	}
	if len(found.flows) > mostFlows {
		return &say.Problem{
			Code: usage.Exit, What: fmt.Sprintf("there are %d flows, and at most %d are judged at once", len(found.flows), mostFlows),
			Next: "ask namespace by namespace, with --of",
		}
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askTime)
	defer cancel()
	resp, err := ask(ctx, conn, all, found.flows)
	if err != nil {
		return err
	}
	if len(resp.GetProblems()) > 0 {
		return refused(all, resp.GetProblems())
	}
	r := summarise(found.flows, resp, s.all)
	for _, quiet := range found.silent {
		notes = append(notes, "the flows of "+quiet)
	}
	r.Notes = append(r.Notes, notes...)
	if err := r.write(cmd.OutOrStdout(), s.format); err != nil {
		return err
	}
	if r.Changes > 0 {
		return &say.Problem{Code: exitChange, What: fmt.Sprintf("%d of %d flows would change", r.Changes, r.Judged), Next: "apply it if that is what you mean"}
	}
	return nil
}

func times(list []string, one string) (n int) {
	for _, s := range list {
		if s == one {
			n++
		}
	}
	return n
}

// candidates reads what would be applied and deleted. notes are about what is
// passed over.
func (s *settings) candidates(cmd *cobra.Command) (all []proposed, notes []string, err error) {
	var wrong []string
	for _, name := range s.files {
		docs, err := manifest.Read(cmd.Context(), name, cmd.InOrStdin())
		if err != nil {
			if p, ok := errors.AsType[*say.Problem](err); ok {
				p.Code = usage.Exit
			}
			return nil, nil, err
		}
		more, other, bad := propose(docs, s.namespace)
		all, wrong = append(all, more...), append(wrong, bad...)
		for _, o := range other {
			notes = append(notes, o+" is not judged: no policy is made of it")
		}
	}
	if len(s.deleted)+len(all)+len(notes)+len(wrong) == 0 {
		return nil, nil, &say.Problem{
			Code: usage.Exit, What: "there is no object in " + strings.Join(s.files, ", "),
			Why: "of an empty file nothing can be foretold", Next: "name the files that would be applied; - is standard input, and is read once",
		}
	}
	for _, text := range s.deleted {
		p, err := doomed(text, s.namespace)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, p)
	}
	first := map[string]string{}
	for _, p := range all {
		if was, twice := first[p.name+p.asked.GetGroup()]; twice {
			wrong = append(wrong, fmt.Sprintf("%s: %s is in %s, too", p.where, p.name, was))
		}
		first[p.name+p.asked.GetGroup()] = p.where
	}
	if len(wrong) > 0 {
		return nil, nil, mistakes(wrong)
	}
	return all, notes, nil
}

// refused says what admission would.
func refused(all []proposed, problems []*explainv1.CandidateProblem) error {
	var wrong []string
	for _, p := range problems {
		text := p.GetWhat()
		if p.GetWhy() != "" {
			text += ": " + p.GetWhy()
		}
		if p.GetNext() != "" {
			text += "; " + p.GetNext()
		}
		if i := int(p.GetCandidate()); i < len(all) {
			text = all[i].where + ": " + all[i].name + ": " + text
		}
		wrong = append(wrong, plain.Line(text))
	}
	return mistakes(wrong)
}

func mistakes(wrong []string) error {
	return &say.Problem{
		Code: usage.Exit, What: "what would be applied is wrong", Why: strings.Join(wrong[:min(len(wrong), mostWrong)], "\n"),
		Next: "correct the above; nothing was judged",
	}
}

// reach connects to a policy server and finds the flows. Who calls it closes the
// connection.
func (s *settings) reach(cmd *cobra.Command, open connect) (*grpc.ClientConn, gathered, error) {
	var found gathered
	if s.flows != "" {
		text, err := os.ReadFile(s.flows)
		if err != nil {
			return nil, found, &say.Problem{Code: usage.Exit, What: "cannot read " + s.flows, Why: err.Error(), Next: "name a file of flows", Err: err}
		}
		if found.flows, err = ParseFlows(s.flows, text); err != nil {
			return nil, found, err
		}
	}
	if s.server != "" {
		conn, err := grpc.NewClient(s.server, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
		if err != nil {
			return nil, found, fmt.Errorf("making a client of %s: %w", s.server, err)
		}
		if s.flows == "" {
			found = fromProxies(cmd.Context(), s.proxies)
		}
		return conn, found, nil
	}
	door, mesh, err := open(cmd)
	if err != nil {
		return nil, found, err
	}
	if s.flows == "" {
		if found, err = fromCluster(cmd.Context(), door, s.of); err != nil {
			return nil, found, err
		}
	}
	conn, err := diag.PolicyAPI(cmd.Context(), door, mesh, s.pod)
	return conn, found, err
}
