// Package install turns what a person asks for into the manifests of a control
// plane, and what is in a cluster into the manifests of what should go. It only
// prints: `kubectl apply` and `kubectl delete` do the rest.
package install

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weftmesh/weft/tools/weft/internal/manifest"
)

// maxFile bounds a file that a flag names, in bytes; a trust bundle is some KiB.
const maxFile = 1 << 20

// sharedFlags are those of install and upgrade, beside the proxy's.
func sharedFlags() []manifest.Flag {
	return append([]manifest.Flag{
		{Name: "linkerd-cni-enabled", Help: "a CNI plugin redirects traffic (see weft install-cni), not an init container", Read: manifest.Truth, Switch: true, Values: []string{"cniEnabled"}},
		{Name: "controller-log-level", Help: "what the control plane logs: debug, info, warn or error", Read: manifest.OneOf("debug", "info", "warn", "error"), Values: []string{"controllerLogLevel"}},
		{Name: "controller-replicas", Help: "replicas of each part of the control plane", Read: manifest.Count, Values: []string{"controllerReplicas"}},
		{Name: "controller-uid", Help: "the user id that the control plane runs as", Read: manifest.Number, Values: []string{"controllerUID"}},
		{Name: "controller-gid", Help: "the group id that the control plane runs as; -1 leaves it to the image", Read: manifest.Number, Values: []string{"controllerGID"}},
		{Name: "disable-h2-upgrade", Help: "do not carry HTTP/1 inside HTTP/2 between proxies", Read: not, Switch: true, Values: []string{"enableH2Upgrade"}},
		{Name: "disable-heartbeat", Help: "run no heartbeat, which keeps the roll of the mesh's processes", Read: manifest.Truth, Switch: true, Values: []string{"disableHeartBeat"}},
		{Name: "identity-issuance-lifetime", Help: "how long a proxy's certificate lives", Read: lifetime, Values: []string{"identity.issuer.issuanceLifetime"}},
		{Name: "identity-clock-skew-allowance", Help: "how far clocks may be apart", Read: lifetime, Values: []string{"identity.issuer.clockSkewAllowance"}},
		{Name: "identity-issuer-certificate-file", Help: "file with the issuer's certificate (PEM)", Read: file, Values: []string{crtPath}},
		{Name: "identity-issuer-key-file", Help: "file with the issuer's key (PEM)", Read: file, Values: []string{keyPath}},
		{Name: "identity-trust-anchors-file", Help: "file with the trust anchors (PEM)", Read: file, Values: []string{anchorsPath}},
		{Name: "enable-endpoint-slices", Help: "read EndpointSlices", Read: manifest.Truth, Switch: true, Values: []string{"enableEndpointSlices"}},
		{Name: "registry", Help: "where the images are ($LINKERD_DOCKER_REGISTRY)", Read: registry, Values: []string{"registry"}},
	}, manifest.ProxyFlags()...)
}

// firstFlags are those of install alone: what they set cannot change later.
func firstFlags() []manifest.Flag {
	return []manifest.Flag{
		{Name: "cluster-domain", Help: "the cluster's DNS domain", Read: manifest.Text, Values: []string{"clusterDomain"}},
		{Name: "identity-trust-domain", Help: "the domain of identities (default: the cluster's DNS domain)", Read: manifest.Text, Values: []string{"identityTrustDomain"}},
		{Name: "identity-external-issuer", Help: "somebody else, as cert-manager, makes Secret linkerd-identity-issuer", Read: external, Switch: true, Values: []string{"identity.issuer.scheme"}},
		{Name: "identity-external-ca", Help: "somebody else, as trust-manager, makes ConfigMap linkerd-identity-trust-roots", Read: manifest.Truth, Switch: true, Values: []string{"identity.externalCA"}},
	}
}

// Paths of values that are treated specially.
const (
	anchorsPath = "identityTrustAnchorsPEM"
	crtPath     = "identity.issuer.tls.crtPEM"
	keyPath     = "identity.issuer.tls.keyPEM"
	schemePath  = "identity.issuer.scheme"
	portsPath   = "proxyInit.kubeAPIServerPorts"

	externalScheme = "kubernetes.io/tls"
	envRegistry    = "LINKERD_DOCKER_REGISTRY"
)

// not is for a flag that says what is off, where the value says what is on.
func not(s string) (any, error) {
	v, err := manifest.Truth(s)
	if err != nil {
		return nil, err
	}
	return v != true, nil
}

func lifetime(s string) (any, error) {
	if d, err := time.ParseDuration(s); err != nil || d <= 0 {
		return nil, fmt.Errorf("%q is not a time (like 24h)", s)
	}
	return s, nil
}

func registry(s string) (any, error) { return strings.TrimSuffix(s, "/"), nil }

// external is the scheme of Secrets that others make.
func external(s string) (any, error) {
	v, err := manifest.Truth(s)
	if err != nil {
		return nil, err
	}
	if v == true {
		return externalScheme, nil
	}
	return "linkerd.io/tls", nil
}

func file(path string) (any, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		return nil, fmt.Errorf("%s is bigger than %d KiB", path, maxFile>>10)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return string(text), nil
}
