package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	netv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weftmesh/weft/charts"
)

// TestKubernetesKnowsEveryField decodes every object strictly.
func TestKubernetesKnowsEveryField(t *testing.T) {
	for name, list := range variants(t) {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for _, m := range list {
				object(t, m)
				if key := m.APIVersion + title(m); seen[key] {
					t.Errorf("%s is there twice", title(m))
				} else {
					seen[key] = true
				}
			}
		})
	}
}

// TestContainersAreRestricted is the Pod Security Standard "restricted", with a
// root file system that can't be written, for all but the two that change the
// network: linkerd-init, and the installer of the CNI plugin.
func TestContainersAreRestricted(t *testing.T) {
	for name, list := range variants(t) {
		t.Run(name, func(t *testing.T) {
			for _, w := range workloads(t, list) {
				if s := w.pod.Spec; s.HostPID || s.HostIPC || s.ShareProcessNamespace != nil || s.HostNetwork && w.name != "linkerd-cni" {
					t.Errorf("%s shares its node's namespaces", w.name)
				}
				for _, v := range w.pod.Spec.Volumes {
					if v.HostPath != nil && w.name != "linkerd-cni" {
						t.Errorf("%s mounts the node's %s", w.name, v.HostPath.Path)
					}
				}
				for place, c := range w.containers() {
					for _, problem := range unrestricted(w.pod.Spec, c) {
						t.Errorf("%s: %s", place, problem)
					}
				}
			}
		})
	}
}

func unrestricted(pod corev1.PodSpec, c *corev1.Container) (problems []string) {
	sc := c.SecurityContext
	if sc == nil {
		return []string{"has no security context"}
	}
	is := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, problem)
		}
	}
	yes := func(b *bool) bool { return b != nil && *b }
	is(yes(sc.ReadOnlyRootFilesystem), "can write its root file system")
	is(sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation, "can gain privileges")
	is(!yes(sc.Privileged), "is privileged")
	seccomp := sc.SeccompProfile
	if seccomp == nil && pod.SecurityContext != nil {
		seccomp = pod.SecurityContext.SeccompProfile
	}
	is(seccomp != nil && seccomp.Type == corev1.SeccompProfileTypeRuntimeDefault, "has no seccomp profile")
	is(sc.Capabilities != nil && slices.Equal(sc.Capabilities.Drop, []corev1.Capability{"ALL"}), "does not drop all capabilities")
	var add []corev1.Capability
	root := false
	switch c.Name {
	case "linkerd-init":
		add = []corev1.Capability{"NET_ADMIN", "NET_RAW"}
	case "install-cni":
		root = true
	}
	if sc.Capabilities != nil {
		is(slices.Equal(sc.Capabilities.Add, add), fmt.Sprintf("adds capabilities %v", sc.Capabilities.Add))
	}
	is(root || yes(sc.RunAsNonRoot) && sc.RunAsUser != nil && *sc.RunAsUser > 0, "may run as root")
	is(c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError, "does not say why it ended")
	return problems
}

// TestTokens lets only those that ask the API server have a token for it.
func TestTokens(t *testing.T) {
	may := []string{"linkerd-identity", "weft-watcher", "linkerd-cni"}
	for name, list := range variants(t) {
		t.Run(name, func(t *testing.T) {
			for _, m := range list {
				if a, ok := object(t, m).(*corev1.ServiceAccount); ok && (a.AutomountServiceAccountToken == nil || *a.AutomountServiceAccountToken) {
					t.Errorf("pods of account %s have a token unless they say otherwise", a.Name)
				}
			}
			for _, w := range workloads(t, list) {
				mounts := w.pod.Spec.AutomountServiceAccountToken
				if mounts == nil || *mounts != slices.Contains(may, w.name) {
					t.Errorf("%s: automountServiceAccountToken is %v", w.name, mounts)
				}
				for _, v := range w.pod.Spec.Volumes {
					if v.Projected == nil {
						continue
					}
					for _, s := range v.Projected.Sources {
						if s.ServiceAccountToken != nil && s.ServiceAccountToken.Audience != "identity.l5d.io" {
							t.Errorf("%s mounts a token for %q", w.name, s.ServiceAccountToken.Audience)
						}
					}
				}
			}
		})
	}
}

// TestWebhookCannotLockOut asks for each namespace and pod that must start
// without us whether the webhook would see it, also when the values forget it,
// and the same for what the validators see.
func TestWebhookCannotLockOut(t *testing.T) {
	for name, over := range map[string]string{
		"default": "",
		"fail":    "webhookFailurePolicy: Fail",
		"emptied": "{proxyInjector: {namespaceSelector: {matchExpressions: null}, objectSelector: {matchExpressions: null}}, " +
			"policyValidator: {namespaceSelector: {matchExpressions: null}}, profileValidator: {namespaceSelector: {matchExpressions: null}}}",
		"replaced": `proxyInjector: {namespaceSelector: {matchExpressions: null, matchLabels: {team: a}},
  objectSelector: {matchExpressions: [{key: x, operator: Exists}]}}
policyValidator: {namespaceSelector: {matchExpressions: null, matchLabels: {team: a}}}
profileValidator: {namespaceSelector: {matchLabels: {team: a}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			list := rendered(t, charts.ControlPlane, over)
			hook := find[*admissionv1.MutatingWebhookConfiguration](t, list, "MutatingWebhookConfiguration", "linkerd-proxy-injector-webhook-config").Webhooks[0]
			namespaces := map[string]*metav1.LabelSelector{hook.Name: hook.NamespaceSelector}
			for _, validator := range []string{"linkerd-policy-validator", "linkerd-sp-validator"} {
				hook := find[*admissionv1.ValidatingWebhookConfiguration](t, list, "ValidatingWebhookConfiguration", validator+"-webhook-config").Webhooks[0]
				namespaces[hook.Name] = hook.NamespaceSelector
			}
			for who, selector := range namespaces {
				for _, ns := range []string{"kube-system", "kube-node-lease", "linkerd"} {
					// The worst case: everything that could be asked for.
					if matches(t, selector, map[string]string{"kubernetes.io/metadata.name": ns, "team": "a"}) {
						t.Errorf("%s sees namespace %s", who, ns)
					}
				}
				if name != "replaced" && !matches(t, selector, map[string]string{"kubernetes.io/metadata.name": "shop"}) {
					t.Errorf("%s does not see namespace shop", who)
				}
				if name == "default" && matches(t, selector, map[string]string{"kubernetes.io/metadata.name": "shop", "config.linkerd.io/admission-webhooks": "disabled"}) {
					t.Errorf("%s sees a namespace that wants none", who)
				}
			}
			for _, w := range workloads(t, list) {
				if matches(t, hook.ObjectSelector, withLabel(w.pod.Labels, "x")) {
					t.Errorf("it sees pods of %s", w.name)
				}
			}
			for _, w := range workloads(t, rendered(t, charts.CNI, "")) {
				if matches(t, hook.ObjectSelector, withLabel(w.pod.Labels, "x")) {
					t.Errorf("it sees pods of %s", w.name)
				}
			}
		})
	}
}

func withLabel(in map[string]string, key string) map[string]string {
	out := map[string]string{key: ""}
	maps.Copy(out, in)
	return out
}

func matches(t *testing.T, s *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return sel.Matches(labels.Set(set))
}

// TestEverySelectorSelects finds pods and ports behind each Service, budget,
// policy and workload.
func TestEverySelectorSelects(t *testing.T) {
	for name, list := range variants(t) {
		t.Run(name, func(t *testing.T) {
			all := workloads(t, list)
			selected := func(s *metav1.LabelSelector) (out []workload) {
				for _, w := range all {
					if matches(t, s, w.pod.Labels) {
						out = append(out, w)
					}
				}
				return out
			}
			for _, w := range all {
				if got := selected(w.selector); len(got) != 1 || got[0].name != w.name {
					t.Errorf("%s selects the pods of %d workloads", w.name, len(got))
				}
			}
			for _, m := range list {
				switch o := object(t, m).(type) {
				case *corev1.Service:
					got := selected(&metav1.LabelSelector{MatchLabels: o.Spec.Selector})
					if len(got) != 1 {
						t.Errorf("Service %s selects the pods of %d workloads", o.Name, len(got))
						continue
					}
					for _, p := range o.Spec.Ports {
						if !listens(got[0], p) {
							t.Errorf("nothing of %s listens on port %s of Service %s", got[0].name, p.TargetPort.String(), o.Name)
						}
					}
				case *policyv1.PodDisruptionBudget:
					if got := selected(o.Spec.Selector); len(got) != 1 {
						t.Errorf("budget %s selects the pods of %d workloads", o.Name, len(got))
					}
				case *netv1.NetworkPolicy:
					got := selected(&o.Spec.PodSelector)
					if len(got) != 1 {
						t.Errorf("policy %s selects the pods of %d workloads", o.Name, len(got))
						continue
					}
					fenced(t, o, got[0])
				}
			}
		})
	}
}

func listens(w workload, p corev1.ServicePort) bool {
	for _, c := range w.containers() {
		for _, cp := range c.Ports {
			if cp.Name == p.TargetPort.StrVal || cp.ContainerPort == p.TargetPort.IntVal {
				return true
			}
		}
	}
	return false
}

// fenced checks that a policy lets in what its pods listen on, but for what only
// the node's kubelet asks.
func fenced(t *testing.T, p *netv1.NetworkPolicy, w workload) {
	t.Helper()
	open := map[int32]bool{}
	for _, rule := range p.Spec.Ingress {
		for _, port := range rule.Ports {
			open[port.Port.IntVal] = true
		}
	}
	for place, c := range w.containers() {
		for _, cp := range c.Ports {
			if cp.Name != "monitor" && !open[cp.ContainerPort] {
				t.Errorf("policy %s closes port %s of %s", p.Name, cp.Name, place)
			}
		}
	}
}

// TestIdentities: with a trust domain of its own, no identity ends in the
// cluster's domain (complaints B9).
func TestIdentities(t *testing.T) {
	list := rendered(t, charts.ControlPlane, "{clusterDomain: b.local, identityTrustDomain: a.example}")
	found := 0
	for _, m := range list {
		for line := range strings.Lines(m.YAML) {
			if strings.Contains(line, "serviceaccount.identity") {
				found++
				if !strings.HasSuffix(strings.Trim(line, "\"\n"), ".a.example") {
					t.Errorf("%s %s: %s", m.Kind, m.Name, line)
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d identities are named", found)
	}
}

// TestNoPrivateKeys looks for keys outside of Secrets, whatever way they came in.
func TestNoPrivateKeys(t *testing.T) {
	ours := values(t, given)
	for name, list := range map[string][]charts.Manifest{
		"made":  rendered(t, charts.ControlPlane, ""),
		"given": renderedWith(t, charts.ControlPlane, ours, charts.Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range list {
				if m.Kind != "Secret" && (strings.Contains(m.YAML, "PRIVATE KEY") || strings.Contains(m.YAML, "UFJJVkFURSBLRV")) {
					t.Errorf("%s shows a private key", title(m))
				}
			}
			config := find[*corev1.ConfigMap](t, list, "ConfigMap", "linkerd-config").Data["values"]
			for _, want := range []string{"identityTrustAnchorsPEM: |", "linkerdVersion: v1.2.3", "name: ghcr.io/weftmesh/proxy", "identityTrustDomain: cluster.local"} {
				if !strings.Contains(config, want) {
					t.Errorf("linkerd-config lacks %q", want)
				}
			}
			for _, no := range []string{"keyPEM", "caKeyPEM", "_weft"} {
				if strings.Contains(config, no) {
					t.Errorf("linkerd-config has %q", no)
				}
			}
		})
	}
}

// TestAntiAffinity: with high availability no two pods of a component share a
// node, and zones are preferred to be different.
func TestAntiAffinity(t *testing.T) {
	for _, w := range workloads(t, variants(t)["ha"]) {
		a := w.pod.Spec.Affinity
		if a == nil || a.PodAntiAffinity == nil {
			t.Errorf("%s has no anti-affinity", w.name)
			continue
		}
		required, preferred := a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		if len(required) != 1 || required[0].TopologyKey != corev1.LabelHostname || !matches(t, required[0].LabelSelector, w.pod.Labels) {
			t.Errorf("%s: required %+v", w.name, required)
		}
		if len(preferred) != 1 || preferred[0].PodAffinityTerm.TopologyKey != corev1.LabelTopologyZone {
			t.Errorf("%s: preferred %+v", w.name, preferred)
		}
		if d := cmp.Diff(1, len(w.pod.Spec.TopologySpreadConstraints)); d != "" {
			t.Errorf("%s: constraints %s", w.name, d)
		}
	}
}

// TestRequests: with high availability every container says what it needs.
func TestRequests(t *testing.T) {
	for _, w := range workloads(t, variants(t)["ha"]) {
		for place, c := range w.containers() {
			r := c.Resources
			if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().IsZero() || !r.Limits.Cpu().IsZero() {
				t.Errorf("%s: %+v", place, r)
			}
		}
	}
}

// TestNamespace: weft's own install makes it, with the labels that Linkerd's
// clients look for; the webhook's configuration comes last.
func TestNamespace(t *testing.T) {
	for _, chart := range []string{charts.ControlPlane, charts.CNI} {
		list, err := charts.Render(chart, nil, charts.Options{Namespace: "mesh"})
		if err != nil {
			t.Fatal(err)
		}
		if list[0].Kind != "Namespace" || list[0].Name != "mesh" || !strings.Contains(list[0].YAML, "linkerd.io/inject: disabled") {
			t.Errorf("%s begins with %s:\n%s", chart, title(list[0]), list[0].YAML)
		}
		if last := list[len(list)-1]; chart == charts.ControlPlane && !strings.HasSuffix(last.Kind, "WebhookConfiguration") {
			t.Errorf("%s ends with %s", chart, title(last))
		}
	}
}

// TestNotes say what to do next, and warn of an anchor whose key is in the cluster.
func TestNotes(t *testing.T) {
	made, err := charts.Notes(charts.ControlPlane, nil, charts.Options{Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	brought, err := charts.Notes(charts.ControlPlane, values(t, given), charts.Options{Version: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Weft v1.2.3 is in namespace linkerd", "weft check", "linkerd.io/is-control-plane=true", "bring your own"} {
		if !strings.Contains(made, want) {
			t.Errorf("the notes lack %q:\n%s", want, made)
		}
	}
	if strings.Contains(brought, "bring your own") {
		t.Errorf("the notes ask for what was given:\n%s", brought)
	}
}
