package promises

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const webhook = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linkerd-proxy-injector-webhook-config"

// injectorGone scales the injector to nothing until the test ends.
func (b *bed) injectorGone(t *testing.T) {
	t.Helper()
	replicas := b.kubectl(t, "-n", controlPlane, "get", "deployment/linkerd-proxy-injector", "-o", "jsonpath={.spec.replicas}")
	b.kubectl(t, "-n", controlPlane, "scale", "deployment/linkerd-proxy-injector", "--replicas=0")
	t.Cleanup(func() {
		b.kubectl(t, "-n", controlPlane, "scale", "deployment/linkerd-proxy-injector", "--replicas="+replicas)
		b.rollout(t, controlPlane, "deployment/linkerd-proxy-injector")
	})
	b.kubectl(t, "-n", controlPlane, "wait", "pod", "-l", "linkerd.io/control-plane-component=proxy-injector", "--for=delete", "--timeout="+patience.String())
}

// setFailurePolicy lets pods in without the injector, or not, until the test ends.
func (b *bed) setFailurePolicy(t *testing.T, to string) {
	t.Helper()
	set := func(to string) {
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": %q}]`, to)
		if code, answer, err := b.ask(lasting(t), http.MethodPatch, webhook, "application/json-patch+json", patch); err != nil || code != http.StatusOK {
			t.Fatalf("setting the failure policy: %d %s %v", code, answer, err)
		}
	}
	old := b.kubectl(t, "get", "mutatingwebhookconfigurations/linkerd-proxy-injector-webhook-config", "-o", "jsonpath={.webhooks[0].failurePolicy}")
	set(to)
	t.Cleanup(func() { set(old) })
}

// plainPod makes a pod that does next to nothing, and removes it when the test ends.
func (b *bed) plainPod(t *testing.T, namespace, name string) error {
	t.Helper()
	pull := "IfNotPresent"
	if b.own != nil {
		pull = "Never"
	}
	pod := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [
		{"name": "books", "image": %q, "imagePullPolicy": %q, "args": ["books", "-listen=:8080"]}]}}`, name, *registry+"/demo-app:"+*tag, pull)
	code, answer, err := b.ask(lasting(t), http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods", "application/json", pod)
	if err != nil {
		return err
	}
	if code != http.StatusCreated {
		return fmt.Errorf("%d %s", code, answer)
	}
	t.Cleanup(func() { b.kubectl(t, "-n", namespace, "delete", "pod", name, "--ignore-not-found", "--wait=false") })
	return nil
}

// injectorDown: the injector is away once for both promises, since it takes half a
// minute to end.
func injectorDown(t *testing.T, b *bed) {
	t.Helper()
	w := b.watch(t)
	b.injectorGone(t)
	t.Run("the cluster's own namespaces get pods", func(t *testing.T) { admitted(t, b) })
	t.Run("a pod that came up without a proxy is told of", func(t *testing.T) { unmeshed(t, b) })
	w.end(t)
}

// admitted: what must not wait for the mesh does not, what asks for a proxy does.
func admitted(t *testing.T, b *bed) {
	t.Helper()
	b.setFailurePolicy(t, "Fail")
	for _, ns := range []string{"kube-system", controlPlane} {
		if err := b.plainPod(t, ns, "plain"); err != nil {
			t.Errorf("a pod in %s is refused: %v", ns, err)
		}
	}
	if err := b.plainPod(t, "shop", "plain"); err == nil || !strings.Contains(err.Error(), "linkerd-proxy-injector.linkerd.io") {
		t.Errorf("a pod that should have a proxy is not refused because of the injector: %v", err)
	} else {
		t.Logf("in a meshed namespace: %v", err)
	}
	// The control plane's own pods come up without the injector.
	b.kubectl(t, "-n", controlPlane, "delete", "pod", b.pods(t, controlPlane, "linkerd.io/control-plane-component=destination")[0].name)
	b.rollout(t, controlPlane, "deployment/linkerd-destination")
}

// unmeshed: a pod that came up while the injector was away is found, and the
// reason told, within half a minute.
func unmeshed(t *testing.T, b *bed) {
	t.Helper()
	b.setFailurePolicy(t, "Ignore")
	if err := b.plainPod(t, "shop", "plain"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	until(t, 30*time.Second, "an event and the metric", func() error {
		var events struct {
			Items []struct{ Reason, Message string }
		}
		if err := b.read(lasting(t), "/api/v1/namespaces/shop/events?fieldSelector=involvedObject.name%3Dplain", &events); err != nil {
			return err
		}
		said := ""
		for _, e := range events.Items {
			if strings.Contains(e.Reason, "Injection") {
				said = e.Reason + ": " + e.Message
			}
		}
		counted := 0.0
		for _, p := range b.pods(t, controlPlane, "linkerd.io/control-plane-component=watcher") {
			counted += b.metrics(t, controlPlane, p.name, watcherAdmin).sum(t, "weft_watcher_unmeshed_pods")
		}
		if said == "" || counted == 0 {
			return errors.New("event " + said + fmt.Sprintf(", %v pods counted", counted))
		}
		t.Logf("after %s: %s", time.Since(began).Round(time.Millisecond), said)
		return nil
	})
}
