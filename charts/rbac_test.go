package charts_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/weftmesh/weft/charts"
)

// TestWhoMayDoWhat compares all rights that the charts give with
// testdata/who-may-do-what.txt (-update writes it): a change there is a change
// of what a stolen token is worth.
func TestWhoMayDoWhat(t *testing.T) {
	var b strings.Builder
	for _, chart := range []struct{ name, values string }{
		{charts.ControlPlane, ""}, {charts.CNI, ""}, {charts.CNI, "repairController: {enabled: true}"},
	} {
		fmt.Fprintf(&b, "# %s %s\n", chart.name, chart.values)
		for _, line := range rights(t, rendered(t, chart.name, chart.values)) {
			b.WriteString(line + "\n")
		}
	}
	const file = "testdata/who-may-do-what.txt"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); d != "" {
		t.Errorf("(-want +got; -update accepts it)\n%s", d)
	}
}

// rights are lines "account: where verb resource.group (names)".
func rights(t *testing.T, list []charts.Manifest) []string {
	t.Helper()
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, m := range list {
		switch o := object(t, m).(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole "+o.Name] = o.Rules
		case *rbacv1.Role:
			rules["Role "+o.Name] = o.Rules
		}
	}
	var out []string
	bound := map[string]bool{}
	say := func(where string, subjects []rbacv1.Subject, ref rbacv1.RoleRef) {
		role := ref.Kind + " " + ref.Name
		if _, ok := rules[role]; !ok {
			t.Errorf("%s is bound and not there", role)
		}
		bound[role] = true
		for _, s := range subjects {
			for _, r := range rules[role] {
				for _, line := range spelled(r) {
					out = append(out, s.Namespace+"/"+s.Name+": "+where+": "+line)
				}
			}
			if len(rules[role]) == 0 {
				out = append(out, s.Namespace+"/"+s.Name+": "+where+": nothing ("+role+")")
			}
		}
	}
	for _, m := range list {
		switch o := object(t, m).(type) {
		case *rbacv1.ClusterRoleBinding:
			say("everywhere", o.Subjects, o.RoleRef)
		case *rbacv1.RoleBinding:
			say("in "+o.Namespace, o.Subjects, o.RoleRef)
		}
	}
	for role, rr := range rules {
		if !bound[role] {
			for _, r := range rr {
				for _, line := range spelled(r) {
					out = append(out, "(whom others bind to "+role+"): "+line)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func spelled(r rbacv1.PolicyRule) (out []string) {
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			line := strings.Join(r.Verbs, ",") + " " + strings.TrimSuffix(resource+"."+group, ".")
			if len(r.ResourceNames) > 0 {
				line += " (" + strings.Join(r.ResourceNames, ", ") + ")"
			}
			out = append(out, line)
		}
	}
	return out
}

// row is one entry of the watcher's list of kinds: {Kind, "group", []string{…}, "resource", …}.
var row = regexp.MustCompile(`(?m)^\t\{\w+, "([a-z0-9.-]*)", \[\]string\{[^}]*\}, "([a-z]+)", (?:true|false), (?:true|false)\},$`)

// TestWatcherReads: the watcher may list and watch what its source reads, and
// nothing else.
func TestWatcherReads(t *testing.T) {
	source, err := os.ReadFile("../services/watcher/internal/shape/kind.go")
	if err != nil {
		t.Skipf("the watcher's source is not here: %v", err)
	}
	var want []string
	for _, m := range row.FindAllStringSubmatch(string(source), -1) {
		want = append(want, "weft-watcher: everywhere: list,watch "+strings.TrimSuffix(m[2]+"."+m[1], "."))
	}
	if len(want) < 10 {
		t.Fatalf("only %d kinds were found in the watcher's source", len(want))
	}
	slices.Sort(want)
	var got []string
	for _, line := range rights(t, rendered(t, charts.ControlPlane, "")) {
		if line, ok := strings.CutPrefix(line, "linkerd/"); ok && strings.HasPrefix(line, "weft-watcher: everywhere: ") && strings.Contains(line, "list") {
			got = append(got, line)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-the watcher's source +the chart)\n%s", d)
	}
}
