package rotate

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

const (
	// exitWaiting says that a rotation is not complete: run the command again.
	exitWaiting = 3
)

// Command returns `weft identity`, with `weft identity rotate` under it.
func Command() *cobra.Command {
	var namespace, selector string
	cmd := &cobra.Command{
		Use:   "identity [PODS]",
		Short: "Show the certificates of pods' proxies; rotate the mesh's issuer and trust anchors",
		Long: `Show the certificate that each pod's proxy presents, as it does to its peers: it
is asked for by TLS, on the proxy's admin port, through the API server.`,
		Example: `  weft identity -n shop web-5d5c7b6f9c-x2x7v
  weft identity -n shop -l app=web
  weft identity rotate`,
		RunE: func(cmd *cobra.Command, pods []string) error {
			if len(pods) == 0 && selector == "" {
				return &say.Problem{
					What: "no pod is named", Next: "name pods, or choose them with -l (`weft identity -n shop -l app=web`)", Code: usage.Exit,
				}
			}
			client, err := kube.From(cmd).Connect()
			if err != nil {
				return err
			}
			return showPods(cmd.Context(), client, cmd.OutOrStdout(), namespace, selector, pods)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the pods")
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "label selector of the pods")
	cmd.AddCommand(rotateCommand())
	return cmd
}

// showPods writes the leaf of each pod.
func showPods(ctx context.Context, from cluster, out io.Writer, ns, selector string, names []string) error {
	proxies, err := readProxies(ctx, from, ns, selector)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		byPod := make(map[string]Proxy, len(proxies))
		for _, p := range proxies {
			byPod[p.Pod] = p
		}
		proxies = nil
		for _, name := range names {
			p, ok := byPod[name]
			if !ok {
				return &say.Problem{
					What: fmt.Sprintf("no pod %s with a proxy is in namespace %s", name, ns), Why: "it does not exist, has ended, does not match the selector or is not meshed",
					Next: fmt.Sprintf("kubectl -n %s get pods; name another namespace with -n", ns),
				}
			}
			proxies = append(proxies, p)
		}
	}
	if len(proxies) == 0 {
		return &say.Problem{
			What: fmt.Sprintf("no pod with a proxy matches %q in namespace %s", selector, ns), Next: fmt.Sprintf("kubectl -n %s get pods -l %s", ns, selector),
		}
	}
	Probe(ctx, from, proxies)
	silent := 0
	for i, p := range proxies {
		fmt.Fprintf(out, "\nPOD %s (%d of %d)\n\n", p.Pod, i+1, len(proxies))
		if p.Silent != "" {
			silent++
			fmt.Fprintf(out, "it shows no certificate: %s\n", p.Silent)
			continue
		}
		for _, c := range p.Chain {
			if !c.IsCA {
				fmt.Fprint(out, Text(c))
			}
		}
	}
	if silent > 0 {
		return &say.Problem{
			What: fmt.Sprintf("%d of %d proxies showed no certificate", silent, len(proxies)), Why: "the reasons are above",
			Next: "weft check --proxy",
		}
	}
	return nil
}
