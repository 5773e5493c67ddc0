package charts_test

import (
	"strings"
	"testing"

	"github.com/weftmesh/weft/charts"
)

// given are certificates that somebody brings. The templates copy them.
const given = `
identityTrustAnchorsPEM: "-----BEGIN CERTIFICATE-----\nanchor\n-----END CERTIFICATE-----"
identity: {issuer: {tls: {crtPEM: "-----BEGIN CERTIFICATE-----\nissuer\n-----END CERTIFICATE-----", keyPEM: "-----BEGIN EC PRIVATE KEY-----\nx\n-----END EC PRIVATE KEY-----"}}}
proxyInjector: &hook {crtPEM: "-----BEGIN CERTIFICATE-----\nhook\n-----END CERTIFICATE-----", keyPEM: "-----BEGIN EC PRIVATE KEY-----\nx\n-----END EC PRIVATE KEY-----"}
policyValidator: *hook
profileValidator: *hook
`

// TestProblems: what cannot work is refused with what, why and next.
func TestProblems(t *testing.T) {
	anchor := `identityTrustAnchorsPEM: "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"` + "\n"
	for _, tt := range []struct{ name, values, want string }{
		{"a network that is none", `clusterNetworks: "10.0.0.0/8,here"`, `clusterNetworks: "here" is not a network`},
		{"a network without a mask", `clusterNetworks: "10.0.0.1"`, `clusterNetworks: "10.0.0.1" is not a network`},
		{"an issuer without its key", `identity: {issuer: {tls: {crtPEM: "-----BEGIN CERTIFICATE-----"}}}`, "there is a certificate but no key"},
		{"a key without its issuer", `identity: {issuer: {tls: {keyPEM: "-----BEGIN EC PRIVATE KEY-----"}}}`, "there is a key but no certificate"},
		{"an issuer without anchors", `identity: {issuer: {tls: {crtPEM: "-----BEGIN CERTIFICATE-----", keyPEM: "-----BEGIN EC PRIVATE KEY-----"}}}`, "identityTrustAnchorsPEM is not"},
		{"anchors without an issuer", anchor, "identityTrustAnchorsPEM is given but no issuer"},
		{"an issuer of others without anchors", `identity: {issuer: {scheme: kubernetes.io/tls}}`, "there are no trust anchors"},
		{"cert-manager without an issuer", anchor + `identity: {issuer: {certManager: {enabled: true}}}`, "certManager.enabled without issuerRef.name"},
		{"a webhook's Secret of others without a CA", `proxyInjector: {externalSecret: true}`, "externalSecret without a CA"},
		{"half a certificate of the webhook", `proxyInjector: {crtPEM: "-----BEGIN CERTIFICATE-----"}`, "only one is given"},
		{"two makers of the webhook's certificate", `proxyInjector: {externalSecret: true, caBundle: "-----BEGIN CERTIFICATE-----", certManager: {enabled: true}}`, "certManager.enabled together with externalSecret"},
		{"half a certificate of a validator", `policyValidator: {keyPEM: "-----BEGIN EC PRIVATE KEY-----"}`, "policyValidator.crtPEM and keyPEM: only one is given"},
		{"a validator's Secret of others without a CA", `profileValidator: {externalSecret: true}`, "profileValidator.externalSecret without a CA"},
		{"half an authority of the bus", `bus: {tls: {caPEM: "-----BEGIN CERTIFICATE-----"}}`, "caPEM and caKeyPEM: only one is given"},
		{"no bus", `{nats: {enabled: false}, bus: {tls: {source: secrets}}}`, "nats.enabled is false and nats.url is empty"},
		{"two buses", `nats: {url: "tls://a:4222"}`, "nats.url is set while nats.enabled is true"},
		{"certificates for servers of others", `nats: {enabled: false, url: "tls://a:4222"}`, "the NATS servers are not ours"},
		{"credentials for our servers", `bus: {auth: credentials}`, "bus.auth is credentials but nats.enabled is true"},
		{"high availability of one", `highAvailability: true`, "highAvailability with controllerReplicas=1"},
		{"high availability of one front-end", `{highAvailability: true, controllerReplicas: 3, policyController: {replicas: 1}}`, "highAvailability with policyController.replicas=1"},
		{"high availability that scales to one", `{highAvailability: true, controllerReplicas: 3, destinationController: {autoscaling: {enabled: true, minReplicas: 1}}}`, "destinationController.autoscaling.minReplicas=1"},
		{"high availability on one server", `{highAvailability: true, controllerReplicas: 3, nats: {replicas: 1}}`, "highAvailability with one NATS server"},
		{"high availability on two servers", `{highAvailability: true, controllerReplicas: 3, nats: {replicas: 2}}`, "highAvailability with nats.replicas=2"},
		{"nodes that can't be drained", `{enablePodDisruptionBudget: true, podDisruptionBudget: {maxUnavailable: 0}}`, "podDisruptionBudget.maxUnavailable is 0"},
		{"an autoscaler that scales nowhere", `policyController: {autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 3}}`, "minReplicas 5 is above maxReplicas 3"},
		{"a kernel setting without root", `proxyInit: {closeWaitTimeoutSecs: 60}`, "closeWaitTimeoutSecs needs proxyInit.runAsRoot=true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := charts.Render(charts.ControlPlane, values(t, tt.values), charts.Options{})
			if err == nil {
				t.Fatal("it is accepted")
			}
			text := err.Error()
			if !strings.Contains(text, tt.want) {
				t.Errorf("it says\n%s\nand not %q", text, tt.want)
			}
			if strings.Count(text, "\n  why:  ") == 0 || strings.Count(text, "\n  why:  ") != strings.Count(text, "\n  next: ") {
				t.Errorf("it does not say why and what next:\n%s", text)
			}
			if strings.Contains(text, ".tpl:") || strings.Contains(text, "template") {
				t.Errorf("it speaks of templates:\n%s", text)
			}
		})
	}
	_, err := charts.Render(charts.ControlPlane, values(t, `{clusterNetworks: "x", highAvailability: true}`), charts.Options{})
	if err == nil || strings.Count(err.Error(), "next:") < 2 {
		t.Errorf("not all problems are said at once: %v", err)
	}
}

// TestSchema: nonsense is refused, and the error names the value.
func TestSchema(t *testing.T) {
	for _, tt := range []struct{ name, chart, values, want string }{
		{"a name nobody knows", charts.ControlPlane, "controlerReplicas: 3", "controlerReplicas"},
		{"a name nobody knows, deep", charts.ControlPlane, "proxy: {image: {tag: x}}", "tag"},
		{"a word for a number", charts.ControlPlane, "controllerReplicas: many", "/controllerReplicas"},
		{"no replicas", charts.ControlPlane, "controllerReplicas: 0", "/controllerReplicas"},
		{"a word for a switch", charts.ControlPlane, `cniEnabled: "yes"`, "/cniEnabled"},
		{"a policy nobody knows", charts.ControlPlane, "proxy: {defaultInboundPolicy: open}", "/proxy/defaultInboundPolicy"},
		{"a failure policy nobody knows", charts.ControlPlane, "webhookFailurePolicy: Sometimes", "/webhookFailurePolicy"},
		{"a duration without a unit", charts.ControlPlane, "proxy: {outboundConnectTimeout: \"100\"}", "/proxy/outboundConnectTimeout"},
		{"a port that can't be", charts.ControlPlane, "proxy: {ports: {admin: 70000}}", "/proxy/ports/admin"},
		{"a memory that can't be", charts.ControlPlane, "destinationResources: {memory: {limit: lots}}", "/destinationResources/memory/limit"},
		{"Kubernetes' shape of resources", charts.ControlPlane, "destinationResources: {requests: {cpu: 1}}", "/destinationResources"},
		{"a PEM that is a path", charts.ControlPlane, "identityTrustAnchorsPEM: ca.crt", "/identityTrustAnchorsPEM"},
		{"a time of the webhook's that the API server refuses", charts.ControlPlane, "proxyInjector: {timeoutSeconds: 60}", "/proxyInjector/timeoutSeconds"},
		{"four servers", charts.ControlPlane, "nats: {replicas: 4}", "/nats/replicas"},
		{"a URL that is none", charts.ControlPlane, "nats: {enabled: false, url: nats.example}", "/nats/url"},
		{"a cluster of two words", charts.ControlPlane, "bus: {cluster: a.b}", "/bus/cluster"},
		{"no endpoint slices", charts.ControlPlane, "enableEndpointSlices: false", "/enableEndpointSlices"},
		{"all of the cores", charts.ControlPlane, "proxy: {runtime: {workers: {maximumCPURatio: 1}}}", "maximumCPURatio"},
		{"keep", charts.CRDs, "keep: maybe", "/keep"},
		{"a path that is none", charts.CNI, "destCNIBinDir: opt/cni", "/destCNIBinDir"},
		{"a name nobody knows, of the plugin's", charts.CNI, "proxyUid: 1", "proxyUid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := charts.Render(tt.chart, values(t, tt.values), charts.Options{})
			if err == nil {
				t.Fatal("it is accepted")
			}
			// helm writes '/a/b' in older and a.b in newer releases
			if text := err.Error(); !strings.Contains(text, tt.want) && !strings.Contains(text, strings.ReplaceAll(strings.TrimPrefix(tt.want, "/"), "/", ".")) {
				t.Errorf("it says %q and not %q", text, tt.want)
			}
		})
	}
}

// TestOldKubernetes is refused, whoever renders.
func TestOldKubernetes(t *testing.T) {
	_, err := charts.Render(charts.ControlPlane, nil, charts.Options{KubeVersion: "v1.30.4"})
	if err == nil || !strings.Contains(err.Error(), "needs Kubernetes") {
		t.Errorf("v1.30.4: %v", err)
	}
	if _, err := charts.Render(charts.ControlPlane, nil, charts.Options{KubeVersion: "v1.37.2"}); err != nil {
		t.Errorf("v1.37.2: %v", err)
	}
	if _, err := charts.Render("weft-nothing", nil, charts.Options{}); err == nil {
		t.Error("a chart that is none is rendered")
	}
}
