package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const (
	// versionTime bounds how long the cluster may take to say its version.
	versionTime = 5 * time.Second
	unavailable = "unavailable"
)

type versionOptions struct {
	short, client, proxy bool
	namespace            string
}

// versionCommand returns `weft version`.
func versionCommand() *cobra.Command {
	var o versionOptions
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print which Weft this is, and which the cluster has",
		Args:  usage.NoArgs,
	}
	cmd.Flags().BoolVar(&o.short, "short", false, "print the versions alone")
	cmd.Flags().BoolVar(&o.client, "client", false, "ask no cluster")
	cmd.Flags().BoolVar(&o.proxy, "proxy", false, "count the versions of the proxies, too")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "count the proxies of this namespace (default: of all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		verbose, _ := cmd.Flags().GetBool("verbose")
		if err := o.run(cmd.Context(), cmd.OutOrStdout(), kube.From(cmd), verbose); err != nil {
			return fmt.Errorf("writing the versions: %w", err)
		}
		return nil
	}
	return cmd
}

// run writes versions. A cluster that does not answer is no error: what this
// command is can be said all the same.
func (o versionOptions) run(ctx context.Context, w io.Writer, flags *kube.Flags, verbose bool) error {
	label := func(text string) string {
		if o.short {
			return ""
		}
		return text + ": "
	}
	var b strings.Builder
	fmt.Fprintln(&b, label("Client version")+build.Version())
	if verbose && !o.short {
		fmt.Fprintf(&b, "Client commit: %s\nClient platform: %s %s/%s\n", cmp.Or(build.Commit(), "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	}
	if !o.client {
		ctx, cancel := context.WithTimeout(ctx, versionTime)
		defer cancel()
		client, err := flags.Connect()
		server, proxies := unavailable, map[string]int(nil)
		if err == nil {
			server = serverVersion(ctx, client)
			if o.proxy {
				proxies, err = proxyVersions(ctx, client, o.namespace)
			}
		}
		fmt.Fprintln(&b, label("Server version")+server)
		if o.proxy {
			if err != nil {
				fmt.Fprintln(&b, label("Proxy versions")+unavailable)
			} else {
				writeProxies(&b, proxies)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeProxies(b *strings.Builder, count map[string]int) {
	fmt.Fprintln(b, "Proxy versions:")
	for _, version := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(b, "\t%s (%d pods)\n", version, count[version])
	}
}

// serverVersion is what the mesh's settings say.
func serverVersion(ctx context.Context, client *kube.Client) string {
	cm, err := client.Get(ctx, kube.ConfigMaps, client.Namespace(), "linkerd-config")
	if err != nil {
		return unavailable
	}
	text, _, _ := unstructured.NestedString(cm.Object, "data", "values")
	var values struct {
		Version string `json:"linkerdVersion"`
	}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		return unavailable
	}
	return cmp.Or(values.Version, unavailable)
}

// proxyVersions counts pods by the version of their proxy's image.
func proxyVersions(ctx context.Context, client *kube.Client, ns string) (map[string]int, error) {
	pods, err := client.List(ctx, kube.Pods, ns, "linkerd.io/control-plane-ns="+client.Namespace())
	if err != nil {
		return nil, err
	}
	count := make(map[string]int)
	for _, pod := range pods {
		if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Succeeded" || phase == "Failed" {
			continue
		}
		if image := proxyImage(&pod); image != "" {
			count[imageVersion(image)]++
		}
	}
	return count, nil
}

// proxyImage is the image of a pod's proxy, which may be a native sidecar; ""
// if it has none.
func proxyImage(pod *unstructured.Unstructured) string {
	for _, list := range []string{"containers", "initContainers"} {
		containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", list)
		for _, c := range containers {
			if c, ok := c.(map[string]any); ok && c["name"] == "linkerd-proxy" {
				image, _ := c["image"].(string)
				return image
			}
		}
	}
	return ""
}

// imageVersion is the tag of an image; the digest if it has no tag.
func imageVersion(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
		return name[at+1:]
	}
	return cmp.Or(digest, "latest")
}
