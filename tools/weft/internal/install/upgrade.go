package install

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/charts"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/manifest"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

type upgradeOptions struct {
	asked       *asked
	crds, force bool
	reset       bool
	from        string
	format      *manifest.Format
}

// UpgradeCommand returns `weft upgrade`.
func UpgradeCommand() *cobra.Command {
	var o upgradeOptions
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Print the manifests of a control plane that is there, as they should be now",
		Long: `Print the manifests of a control plane that is there, as this version of the
command makes them. What was asked for earlier is read from Secret
linkerd-config-overrides; flags are laid over it and remembered in their turn.

Certificates stay. If there are to be new ones, the issuer must be signed by
anchors that every running proxy trusts, or those proxies would be cut off;
--force prints the manifests even so.`,
		Example: `  weft upgrade --crds | kubectl apply -f -
  weft upgrade | kubectl apply -f -
  weft upgrade | kubectl diff -f -`,
		Args: usage.NoArgs,
	}
	o.asked = bind(cmd, sharedFlags())
	o.asked.bindHA(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&o.crds, "crds", false, "print the kinds that the control plane works with, and nothing else")
	fs.BoolVar(&o.force, "force", false, "do not ask running proxies whether they trust the issuer")
	fs.BoolVar(&o.reset, "reset-values", false, "forget what was asked for earlier")
	fs.StringVar(&o.from, "from-manifests", "", "file (or -) with the manifests of the installed control plane, instead of the cluster")
	o.format = manifest.BindFormat(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		docs, err := o.documents(cmd, kube.From(cmd))
		if err != nil {
			return err
		}
		return manifest.Write(cmd.OutOrStdout(), *o.format, docs)
	}
	return cmd
}

// find gives an object of the installed control plane by kind and name; nil if
// there is none.
type find = func(apiVersion, kind, ns, name string) (map[string]any, error)

// documents are the manifests as they should be now.
func (o upgradeOptions) documents(cmd *cobra.Command, flags *kube.Flags) ([]manifest.Document, error) {
	ctx := cmd.Context()
	how := charts.Options{Namespace: flags.Mesh, Version: build.Version(), Upgrade: true}
	var client *kube.Client
	if o.from != "" {
		docs, err := manifest.Read(ctx, o.from, cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		how.Lookup = among(docs)
	} else {
		var err error
		if client, err = flags.Connect(); err != nil {
			return nil, err
		}
		if how.KubeVersion, err = kubeVersion(ctx, client); err != nil {
			return nil, err
		}
		how.Lookup = lookup(ctx, client)
	}
	earlier, err := overrides(how.Lookup, flags.Mesh)
	if err != nil {
		return nil, err
	}
	if o.reset {
		earlier = Tree{}
	}
	now, err := o.asked.values(nil)
	if err != nil {
		return nil, err
	}
	given := charts.Merge(earlier, now)
	if o.crds {
		return renderCRDs(given, how)
	}
	values, err := withCertificates(how.Lookup, flags.Mesh, earlier, now)
	if err != nil {
		return nil, err
	}
	if client != nil {
		values = withPorts(ctx, client, values)
	}
	docs, err := render(charts.ControlPlane, values, how)
	if err != nil {
		return nil, err
	}
	if err := credentials(docs, time.Now(), has(now, crtPath)); err != nil {
		return nil, err
	}
	if client != nil && !o.force {
		issuer, err := issuerOf(docs, how.Lookup, flags.Mesh)
		if err != nil {
			return nil, err
		}
		if err := trusted(ctx, client, issuer); err != nil {
			return nil, err
		}
	}
	return remember(docs, flags.Mesh, given)
}

// overrides reads what was asked for when the control plane was installed.
func overrides(look find, ns string) (Tree, error) {
	secret, err := look("v1", "Secret", ns, overridesName)
	if err != nil {
		return nil, err
	}
	if secret == nil {
		config, err := look("v1", "ConfigMap", ns, configName)
		if err != nil {
			return nil, err
		}
		if config == nil {
			return nil, &say.Problem{
				What: "there is no control plane in namespace " + ns, Why: "it has neither Secret " + overridesName + " nor ConfigMap " + configName,
				Next: "install one with `weft install`, or name another namespace with --linkerd-namespace",
			}
		}
		return nil, &say.Problem{
			What: "the control plane in namespace " + ns + " was not installed by this command", Why: "Secret " + overridesName + " does not exist",
			Next: "upgrade it with what installed it (`helm upgrade` if that was helm)",
		}
	}
	out := Tree{}
	if err := yaml.Unmarshal([]byte(datum(secret, overridesName)), &out); err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", ns, overridesName, err)
	}
	return out, nil
}

// datum is a value of a ConfigMap or Secret; "" if it is not there.
func datum(obj Tree, key string) string {
	if plain, ok, _ := unstructured.NestedString(obj, "stringData", key); ok {
		return plain
	}
	value, _, _ := unstructured.NestedString(obj, "data", key)
	if obj["kind"] != "Secret" {
		return value
	}
	plain, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return ""
	}
	return string(plain)
}

// withCertificates lays now over earlier so that certificates stay what they are
// in the cluster, except those that now gives. It is pure but for look.
func withCertificates(look find, ns string, earlier, now Tree) (Tree, error) {
	values := charts.Merge(without(earlier, anchorsPath, crtPath, keyPath), now)
	scheme := text(values, schemePath)
	foreign := scheme == externalScheme || has(values, "identity.issuer.certManager.enabled")
	newIssuer, newAnchors := has(now, crtPath), has(now, anchorsPath)
	if !foreign && !newIssuer && !newAnchors {
		return values, nil // the chart takes what is there
	}
	if !newAnchors && !has(values, "identity.externalCA") {
		roots, err := look("v1", "ConfigMap", ns, trustRootsName)
		if err != nil {
			return nil, err
		}
		bundle := cmp.Or(datum(roots, bundleKey), text(earlier, anchorsPath))
		values = charts.Merge(values, nested(anchorsPath, bundle))
	}
	if !foreign && !newIssuer {
		secret, err := look("v1", "Secret", ns, issuerName)
		if err != nil {
			return nil, err
		}
		values = charts.Merge(values, nested(crtPath, datum(secret, "crt.pem")))
		values = charts.Merge(values, nested(keyPath, datum(secret, "key.pem")))
	}
	return values, nil
}

// among looks among documents instead of in a cluster.
func among(docs []manifest.Document) find {
	var objects []Tree
	for _, d := range docs {
		items, ok := d.Object["items"].([]any)
		if !ok {
			objects = append(objects, d.Object)
			continue
		}
		for _, item := range items {
			if object, ok := item.(Tree); ok {
				objects = append(objects, object)
			}
		}
	}
	return func(_, kind, ns, name string) (map[string]any, error) {
		at := slices.IndexFunc(objects, func(o Tree) bool {
			there := text(o, "metadata.namespace")
			return o["kind"] == kind && text(o, "metadata.name") == name && (there == ns || there == "")
		})
		if at < 0 {
			return nil, nil
		}
		return objects[at], nil
	}
}
