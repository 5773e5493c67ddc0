package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/injector/inject"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

type injectOptions struct {
	manual, alone, ingress, noIdentity bool
	registry                           string
	flags                              *Flags
	format                             *Format
}

// InjectCommand returns `weft inject`.
func InjectCommand() *cobra.Command {
	var o injectOptions
	cmd := &cobra.Command{
		Use:   "inject FILE|DIRECTORY|URL|-",
		Short: "Add the proxy to manifests",
		Long: `Add the proxy to the workloads in manifests, and write them to standard output.
What was injected and what was not, and why, is said on standard error.

Workloads and namespaces get the annotation linkerd.io/inject, and one
config.linkerd.io annotation for each flag that differs from the mesh's own
settings; the injector does the rest when pods are made. With --manual the proxy
itself is put into the manifests.`,
		Example: `  kubectl get deploy -o yaml | weft inject - | kubectl apply -f -
  weft inject --skip-outbound-ports 3306 app.yaml | kubectl apply -f -`,
		Args: oneSource,
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.manual, "manual", false, "put the proxy itself into the manifests")
	fs.BoolVar(&o.alone, "ignore-cluster", false, "ask no cluster for the mesh's settings; use the defaults")
	fs.BoolVar(&o.ingress, "ingress", false, "the pods are an ingress: route by the host that a request names")
	fs.BoolVar(&o.noIdentity, "disable-identity", false, "")
	fs.StringVar(&o.registry, "registry", os.Getenv("LINKERD_DOCKER_REGISTRY"), "where the proxy's image is ($LINKERD_DOCKER_REGISTRY)")
	_ = fs.MarkHidden("disable-identity") // it exists
	o.flags = BindFlags(fs, append(ProxyFlags(), injectFlags()...))
	o.format = BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.noIdentity {
			return &say.Problem{
				What: "identity cannot be disabled", Why: "every proxy has one: without it there is no mTLS",
				Next: "leave --disable-identity away", Code: usage.Exit,
			}
		}
		mesh := inject.Mesh{Values: inject.DefaultValues(build.Version()), ControllerNamespace: kube.From(cmd).Mesh}
		if !o.alone {
			var err error
			if mesh, err = meshOf(cmd.Context(), kube.From(cmd)); err != nil {
				return err
			}
		}
		docs, err := Read(cmd.Context(), args[0], cmd.InOrStdin())
		if err != nil {
			return err
		}
		return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), docs, mesh, verbose(cmd))
	}
	return cmd
}

// oneSource wants one argument.
func oneSource(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return usage.Error(cmd, fmt.Sprintf("`%s` wants one file, directory or URL, or - for standard input, but got %d arguments", cmd.CommandPath(), len(args)))
}

func verbose(cmd *cobra.Command) bool {
	v, _ := cmd.Flags().GetBool("verbose")
	return v
}

// run injects documents; the report goes to errOut.
func (o injectOptions) run(out, errOut io.Writer, docs []Document, mesh inject.Mesh, verbose bool) error {
	options := inject.Options{Config: o.annotations(mesh.Values), Ingress: o.ingress}
	change := inject.Annotate
	if o.manual {
		change = inject.Manual
		if mesh.Anchors == "" {
			fmt.Fprintln(errOut, warning, "no trust anchors are known: the proxies get none and will not start")
		}
	}
	done, reports, err := each(docs, func(object Object) (Object, []inject.Report, error) {
		return change(object, mesh, options)
	})
	reportInject(errOut, reports, verbose)
	if err != nil {
		return refusal(err)
	}
	return Write(out, *o.format, done)
}

// each changes documents one by one. A document that is refused does not hide
// what is wrong with the next.
func each(docs []Document, change func(Object) (Object, []inject.Report, error)) ([]Document, []inject.Report, error) {
	var all []inject.Report
	var failed error
	out := make([]Document, 0, len(docs))
	for _, d := range docs {
		if !named(d.Object) {
			all = append(all, inject.Report{Outcome: inject.Unchanged})
			out = append(out, d)
			continue
		}
		object, reports, err := change(d.Object)
		all = append(all, reports...)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", d.Where(), err))
			continue
		}
		if !reflect.DeepEqual(object, d.Object) {
			d.Object, d.Raw = object, nil
		}
		out = append(out, d)
	}
	return out, all, failed
}

// named says whether an object says what it is.
func named(object Object) bool {
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	return kind != "" && version != ""
}

func refusal(err error) error {
	next := "take those out, or change them; what the report calls injected could be"
	if errors.Is(err, inject.ErrControlPlane) {
		next = "use --manual"
	}
	return &say.Problem{What: "not everything can be injected, so nothing was written", Why: err.Error(), Next: next, Err: err}
}

// span takes a duration; plain numbers are seconds.
func span(s string) (any, error) {
	if d, err := time.ParseDuration(cmp.Or(s, "x")); err == nil && d >= 0 {
		return s, nil
	}
	return nil, fmt.Errorf("%q is not a duration (like 60s)", s)
}
