package manifest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weftmesh/weft/services/injector/inject"
)

// How a line of a report begins.
const (
	fine    = "√"
	warning = "‼"
)

// finding is one line of a report: what is wrong with some objects, or that
// nothing is; what Linkerd does not look for has no word for that.
type finding struct {
	found func(names string, many bool) string
	none  string
	has   func(inject.Report) bool
}

func because(reason string) func(inject.Report) bool {
	return func(r inject.Report) bool { return slices.Contains(r.Reasons, reason) }
}

var findings = []finding{
	{
		has:   because(inject.HostNetwork),
		found: func(names string, _ bool) string { return `"hostNetwork: true" detected in ` + names },
		none:  "pods do not use host networking",
	},
	{
		has:   because(inject.SidecarExists),
		found: func(names string, _ bool) string { return "known 3rd party sidecar detected in " + names },
		none:  "pods do not have a 3rd party proxy or initContainer already injected",
	},
	{
		has:   because(inject.WindowsPod),
		found: func(names string, _ bool) string { return "pods that run on Windows detected in " + names },
	},
	{
		has:   because(inject.DisabledAtWorkload),
		found: func(names string, _ bool) string { return `"linkerd.io/inject: disabled" annotation set on ` + names },
		none:  "pods are not annotated to disable injection",
	},
	{
		has:   because(inject.NoAccountToken),
		found: func(names string, _ bool) string { return "the service account's token is not mounted in " + names },
		none:  `pods do not have automountServiceAccountToken set to "false"`,
	},
	{
		has: func(r inject.Report) bool { return r.UDP },
		found: func(names string, many bool) string {
			if many {
				return names + ` use "protocol: UDP"`
			}
			return names + ` uses "protocol: UDP"`
		},
		none: "pod specs do not include UDP ports",
	},
}

// reportInject says what was injected, what was not, and why, as Linkerd does.
func reportInject(w io.Writer, reports []inject.Report, verbose bool) {
	said := verbose
	var b strings.Builder
	b.WriteByte('\n') // apart from the manifests, where both are on a terminal
	for _, f := range findings {
		var names []string
		for _, r := range reports {
			if f.has(r) {
				names = append(names, r.Object())
			}
		}
		switch {
		case len(names) > 0:
			said = true
			fmt.Fprintln(&b, warning, f.found(strings.Join(names, ", "), len(names) > 1))
		case verbose && f.none != "":
			fmt.Fprintln(&b, fine, f.none)
		}
	}
	for _, r := range reports {
		for _, text := range r.Warnings {
			said = true
			fmt.Fprintln(&b, warning, r.Object()+": "+text)
		}
	}
	if !slices.ContainsFunc(reports, touched) {
		said = true
		fmt.Fprintln(&b, warning, "no supported objects found")
	} else if verbose {
		fmt.Fprintln(&b, fine, "at least one resource injected")
	}
	if said {
		b.WriteByte('\n')
	}
	for _, r := range reports {
		fmt.Fprintln(&b, summary(r))
	}
	b.WriteByte('\n')
	fmt.Fprint(w, b.String())
}

func reportUninject(w io.Writer, reports []inject.Report) {
	var b strings.Builder
	b.WriteByte('\n')
	for _, r := range reports {
		fmt.Fprintln(&b, summary(r))
	}
	b.WriteByte('\n')
	fmt.Fprint(w, b.String())
}

func touched(r inject.Report) bool {
	return r.Outcome == inject.Annotated || r.Outcome == inject.Injected
}

// summary is an object's line.
func summary(r inject.Report) string {
	verb := "skipped"
	switch r.Outcome {
	case inject.Injected:
		verb = "injected"
	case inject.Annotated:
		verb = "injected"
		if r.Kind == "namespace" || r.Kind == "service" {
			verb = "annotated"
		}
	case inject.Uninjected:
		verb = "uninjected"
	case inject.Unchanged, inject.Skipped:
		if r.Kind == "" {
			return `document missing "kind" field, skipped`
		}
	}
	return fmt.Sprintf("%s %q %s", r.Kind, r.Name, verb)
}
