package profile

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const (
	// most is how long a description may be, in bytes.
	most = 16 << 20
	// clusterTime bounds asking the cluster for its domain.
	clusterTime   = 10 * time.Second
	defaultDomain = "cluster.local"
)

type options struct {
	template, alone bool
	openAPI, proto  string
	namespace       string
}

// Command returns `weft profile`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "profile (--template | --open-api FILE | --proto FILE) SERVICE",
		Short: "Write a ServiceProfile to begin with",
		Long: `Write a ServiceProfile: the routes of a service, of which requests are counted,
retried and timed out by route. It is made of a template, of an OpenAPI description
(whose x-linkerd-retryable and x-linkerd-timeout count) or of the services in a
protobuf file. FILE may be - for standard input.

Its name ends in the cluster's domain, which is read from the cluster; with
--ignore-cluster it is taken for cluster.local.`,
		Example: `  weft profile --template -n shop web
  weft profile --open-api web.swagger -n shop web | kubectl apply -f -
  weft profile --proto web.proto -n shop web | kubectl apply -f -`,
		Args: func(cmd *cobra.Command, args []string) error { return o.judge(cmd, args) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.template, "template", false, "write a template")
	fs.StringVar(&o.openAPI, "open-api", "", "make routes of an OpenAPI description in this file")
	fs.StringVar(&o.proto, "proto", "", "make routes of the services in this protobuf file")
	fs.StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the service")
	fs.BoolVar(&o.alone, "ignore-cluster", false, "ask no cluster")
	format := manifest.BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s := Service{Name: args[0], Namespace: o.namespace, ClusterDomain: defaultDomain}
		if !o.alone {
			domain, err := clusterDomain(cmd.Context(), kube.From(cmd))
			if err != nil {
				return err
			}
			s.ClusterDomain = domain
		}
		doc, err := o.make(s, cmd.InOrStdin())
		if err != nil {
			return err
		}
		return manifest.Write(cmd.OutOrStdout(), *format, []manifest.Document{doc})
	}
	return cmd
}

// judge judges the command line.
func (o *options) judge(cmd *cobra.Command, args []string) error {
	ways := 0
	for _, set := range []bool{o.template, o.openAPI != "", o.proto != ""} {
		if set {
			ways++
		}
	}
	wrong := ""
	switch {
	case ways != 1:
		wrong = "one of --template, --open-api and --proto is needed, and only one makes sense"
	case len(args) == 0:
		wrong = "the service's name is missing"
	case len(args) > 1:
		wrong = fmt.Sprintf("argument %q is one too many", args[1])
	case len(validation.IsDNS1035Label(args[0])) > 0:
		wrong = fmt.Sprintf("%q is no name of a Service: %s", args[0], validation.IsDNS1035Label(args[0])[0])
	case len(validation.IsDNS1123Label(o.namespace)) > 0:
		wrong = fmt.Sprintf("%q is no namespace: %s", o.namespace, validation.IsDNS1123Label(o.namespace)[0])
	default:
		return nil
	}
	return usage.Error(cmd, wrong)
}

// make makes the profile that was asked for.
func (o *options) make(s Service, in io.Reader) (manifest.Document, error) {
	file, from := o.openAPI, FromOpenAPI
	switch {
	case o.template:
		docs, err := manifest.Parse("the template", []byte(Template(s)))
		if err != nil {
			return manifest.Document{}, err
		}
		return docs[0], nil
	case o.proto != "":
		file, from = o.proto, FromProto
	}
	text, err := read(file, in)
	if err != nil {
		return manifest.Document{}, err
	}
	p, err := from(s, text)
	if err != nil {
		return manifest.Document{}, &say.Problem{What: "no profile can be made of " + file, Why: err.Error(), Next: "correct the file", Err: err}
	}
	written, err := yaml.Marshal(p)
	if err != nil {
		return manifest.Document{}, fmt.Errorf("writing the profile: %w", err)
	}
	docs, err := manifest.Parse(file, written)
	if err != nil {
		return manifest.Document{}, err
	}
	return docs[0], nil
}

func read(file string, in io.Reader) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, &say.Problem{What: "cannot read " + file, Why: err.Error(), Next: "name a file, or - for standard input", Err: err}
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if len(text) > most {
		return nil, &say.Problem{What: file + " is too big", Why: fmt.Sprintf("more than %d MiB", most>>20), Next: "give a smaller description"}
	}
	return text, nil
}

// clusterDomain reads the cluster's DNS domain from linkerd-config.
func clusterDomain(ctx context.Context, flags *kube.Flags) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	client, err := flags.Connect()
	if err != nil {
		return "", err
	}
	obj, err := client.Get(ctx, kube.ConfigMaps, client.Namespace(), "linkerd-config")
	if err != nil {
		return "", &say.Problem{
			What: "the cluster's domain is not known", Why: err.Error(), Err: err,
			Next: "name the control plane's namespace with --linkerd-namespace, or take cluster.local for it with --ignore-cluster",
		}
	}
	text, _, _ := unstructured.NestedString(obj.Object, "data", "values")
	var values struct {
		Domain string `json:"clusterDomain"`
	}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		return "", fmt.Errorf("reading linkerd-config: %w", err)
	}
	return cmp.Or(strings.TrimSpace(values.Domain), defaultDomain), nil
}
