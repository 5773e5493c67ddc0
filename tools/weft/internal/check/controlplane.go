package check

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/tools/weft/internal/check/engine"
	"github.com/weftmesh/weft/tools/weft/internal/check/judge"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

// The control plane's Deployments, by name.
const (
	destination = "linkerd-destination"
	policy      = "linkerd-policy"
	identity    = "linkerd-identity"
	injector    = "linkerd-proxy-injector"
	watcher     = "weft-watcher"
	nats        = "weft-nats" // a StatefulSet
)

var deployments = []string{destination, identity, injector, policy, watcher}

const reinstall = "install or upgrade the control plane: `weft upgrade | kubectl apply -f -`, or helm upgrade"

func (w *World) existence() engine.Category {
	return engine.Category{Name: "linkerd-existence", Checks: []engine.Check{
		{Name: "'linkerd-config' config map exists", Anchor: "l5d-existence-linkerd-config", Fatal: true, Run: w.readConfig},
		{Name: "heartbeat ServiceAccount exist", Anchor: "l5d-existence-sa", Fatal: true, Run: func(ctx context.Context) error {
			if err := unless(!w.config.NoHeartbeat, "disableHeartBeat"); err != nil {
				return err
			}
			return w.exist(ctx, reinstall, thing{kube.ServiceAccounts, "ServiceAccount", w.Namespace, "linkerd-heartbeat"})
		}},
		{Name: "control plane replica sets are ready", Anchor: "l5d-existence-replicasets", Fatal: true, Retry: true, Run: func(ctx context.Context) error {
			have, err := w.deployments(ctx)
			if err != nil {
				return err
			}
			err = judge.ReplicasReady(have, w.Namespace, deployments)
			if err == nil {
				return nil
			}
			pods, podsErr := w.controlPods(ctx)
			if podsErr != nil {
				return err // it says less, but it is what was asked
			}
			return judge.Together(err, judge.PodsReady(pods, w.reasons(ctx, pods), w.Namespace, nil))
		}},
		{Name: "no unschedulable pods", Anchor: "l5d-existence-unschedulable-pods", Warning: true, Retry: true, Run: func(ctx context.Context) error {
			pods, err := w.controlPods(ctx)
			if err != nil {
				return err
			}
			return judge.Schedulable(pods, w.Namespace)
		}},
		{Name: "control plane pods are ready", Anchor: "l5d-api-control-ready", Fatal: true, Retry: true, Run: func(ctx context.Context) error {
			pods, err := w.controlPods(ctx)
			if err != nil {
				return err
			}
			return judge.PodsReady(pods, w.reasons(ctx, pods), w.Namespace, components)
		}},
		{Name: "cluster networks contains all node podCIDRs", Anchor: "l5d-cluster-networks-cidr", Run: w.networks(w.nodeNetworks)},
		{Name: "cluster networks contains all pods", Anchor: "l5d-cluster-networks-pods", Run: w.networks(w.podAddresses)},
		{Name: "cluster networks contains all services", Anchor: "l5d-cluster-networks-pods", Run: w.networks(w.serviceAddresses)},
	}}
}

// components are the pods that must be there, by their label
// linkerd.io/control-plane-component.
var components = []string{"destination", "identity", "proxy-injector", "policy", "watcher"}

// controlPods are the pods of the control plane's namespace.
func (w *World) controlPods(ctx context.Context) ([]corev1.Pod, error) {
	return list[corev1.Pod](ctx, w.door, kube.Pods, w.Namespace, "")
}

func (w *World) deployments(ctx context.Context) ([]appsv1.Deployment, error) {
	return list[appsv1.Deployment](ctx, w.door, kube.Deployments, w.Namespace, "")
}

// networks judges addresses against the value clusterNetworks.
func (w *World) networks(of func(context.Context) ([]judge.Address, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		nets, err := judge.Networks(w.config.ClusterNetworks)
		if err != nil {
			return err
		}
		addresses, err := of(ctx)
		if err != nil {
			return err
		}
		return judge.Contained(nets, addresses)
	}
}

func (w *World) nodeNetworks(ctx context.Context) ([]judge.Address, error) {
	nodes, err := list[corev1.Node](ctx, w.door, kube.Nodes, "", "")
	if err != nil {
		return nil, err
	}
	var all []judge.Address
	for _, n := range nodes {
		for _, cidr := range n.Spec.PodCIDRs {
			all = append(all, judge.Address{Object: "node " + n.Name, Field: "spec.podCIDRs", Text: cidr})
		}
		if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
			all = append(all, judge.Address{Object: "node " + n.Name, Field: "spec.podCIDR", Text: n.Spec.PodCIDR})
		}
	}
	return all, nil
}

func (w *World) podAddresses(ctx context.Context) ([]judge.Address, error) {
	pods, err := list[corev1.Pod](ctx, w.door, kube.Pods, "", "")
	if err != nil {
		return nil, err
	}
	var all []judge.Address
	for _, p := range pods {
		if p.Spec.HostNetwork || p.Status.Phase != corev1.PodRunning {
			continue // a node's address, or none that holds
		}
		for _, ip := range p.Status.PodIPs {
			all = append(all, judge.Address{Object: fmt.Sprintf("pod %s/%s", p.Namespace, p.Name), Field: "status.podIPs", Text: ip.IP})
		}
	}
	return all, nil
}

func (w *World) serviceAddresses(ctx context.Context) ([]judge.Address, error) {
	services, err := list[corev1.Service](ctx, w.door, kube.Services, "", "")
	if err != nil {
		return nil, err
	}
	var all []judge.Address
	for _, s := range services {
		for _, ip := range s.Spec.ClusterIPs {
			if _, err := netip.ParseAddr(ip); err == nil { // not "None"
				all = append(all, judge.Address{Object: fmt.Sprintf("Service %s/%s", s.Namespace, s.Name), Field: "spec.clusterIPs", Text: ip})
			}
		}
	}
	return all, nil
}

// roles are the names of the ClusterRoles: two of Linkerd's, that clients look
// for, and the watcher's, which is the only one that can read workloads.
func (w *World) roles() []string {
	return []string{"linkerd-" + w.Namespace + "-identity", "linkerd-" + w.Namespace + "-proxy-injector", "weft-" + w.Namespace + "-watcher"}
}

// accounts are the control plane's; policy runs as linkerd-destination.
var accounts = []string{destination, identity, injector, watcher}

const (
	injectorHook = "linkerd-proxy-injector-webhook-config"
	policyHook   = "linkerd-policy-validator-webhook-config"
	profileHook  = "linkerd-sp-validator-webhook-config"
)

func (w *World) linkerdConfig() engine.Category {
	exist := func(name, anchor string, things ...thing) engine.Check {
		return engine.Check{Name: "control plane " + name, Anchor: anchor, Fatal: true, Run: func(ctx context.Context) error {
			return w.exist(ctx, reinstall, things...)
		}}
	}
	var clusterRoles, bindings, serviceAccounts []thing
	for _, name := range w.roles() {
		clusterRoles = append(clusterRoles, thing{kube.ClusterRoles, "ClusterRole", "", name})
		bindings = append(bindings, thing{kube.ClusterRoleBindings, "ClusterRoleBinding", "", name})
	}
	for _, name := range accounts {
		serviceAccounts = append(serviceAccounts, thing{kube.ServiceAccounts, "ServiceAccount", w.Namespace, name})
	}
	return engine.Category{Name: "linkerd-config", Checks: []engine.Check{
		exist("Namespace exists", "l5d-existence-ns", thing{kube.Namespaces, "namespace", "", w.Namespace}),
		exist("ClusterRoles exist", "l5d-existence-cr", clusterRoles...),
		exist("ClusterRoleBindings exist", "l5d-existence-crb", bindings...),
		exist("ServiceAccounts exist", "l5d-existence-sa", serviceAccounts...),
		{Name: "control plane CustomResourceDefinitions exist", Anchor: "l5d-existence-crd", Fatal: true, Run: w.crdsExist},
		exist("MutatingWebhookConfigurations exist", "l5d-existence-mwc", thing{kube.MutatingWebhooks, "MutatingWebhookConfiguration", "", injectorHook}),
		exist("ValidatingWebhookConfigurations exist", "l5d-existence-vwc",
			thing{kube.ValidatingWebhooks, "ValidatingWebhookConfiguration", "", policyHook}, thing{kube.ValidatingWebhooks, "ValidatingWebhookConfiguration", "", profileHook}),
		{Name: "proxy-init container runs as root user if docker container runtime is used", Anchor: "l5d-proxy-init-run-as-root", Run: func(ctx context.Context) error {
			if err := unless(!w.usesCNI(), "the CNI plugin does proxy-init's work"); err != nil {
				return err
			}
			nodes, err := list[corev1.Node](ctx, w.door, kube.Nodes, "", "")
			if err != nil {
				return err
			}
			return judge.DockerNeedsRoot(nodes, w.config.ProxyInit.RunAsRoot)
		}},
	}}
}

func (w *World) ha() engine.Category {
	return engine.Category{Name: "linkerd-ha-checks", Checks: []engine.Check{
		{Name: "multiple replicas of control plane pods", Anchor: "l5d-control-plane-replicas", Warning: true, Retry: true, Run: func(ctx context.Context) error {
			if err := unless(w.config.HA, "not highly available"); err != nil {
				return err
			}
			have, err := w.deployments(ctx)
			if err != nil {
				return err
			}
			have = slices.DeleteFunc(have, func(d appsv1.Deployment) bool { return !slices.Contains(deployments, d.Name) })
			return judge.HighlyAvailable(have, w.Namespace)
		}},
	}}
}
