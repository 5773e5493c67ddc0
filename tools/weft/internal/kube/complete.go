package kube

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// completeTime is how long somebody who pressed Tab waits.
const completeTime = 3 * time.Second

// Complete completes a flag or an argument of a command.
type Complete = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// CompleteNames completes names of objects in the cluster: those in the
// namespace that the command's flag namespace says, if it has one, and else all.
// A cluster that does not answer completes nothing.
func CompleteNames(gvr schema.GroupVersionResource) Complete {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		client, err := From(cmd).Connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTime)
		defer cancel()
		ns, _ := cmd.Flags().GetString("namespace") // no such flag: all
		if gvr == Namespaces {
			ns = ""
		}
		found, err := client.List(ctx, gvr, ns, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, obj := range found {
			names = append(names, obj.GetName())
		}
		return matching(names, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteContexts completes the contexts of the kubeconfig.
func CompleteContexts(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	raw, err := From(cmd).loader().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range raw.Contexts {
		names = append(names, name)
	}
	return matching(names, begun), cobra.ShellCompDirectiveNoFileComp
}

func matching(names []string, begun string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begun) })
	slices.Sort(names)
	return slices.Compact(names)
}
