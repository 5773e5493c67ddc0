package image

import (
	"path"
	"path/filepath"
)

// product is one of Weft's images: a binary of this tree, or more.
type product struct {
	name string
	// binaries are their packages, from the repository's root on.
	binaries []string
	// spec makes the image of the static binaries in a directory.
	spec func(static string) Spec
}

// Users of the images; a pod may run them as another.
const (
	controllerUser = "2103:2103"
	nobody         = "65534:65534"
)

// service is an image with one binary at the root.
func service(name string) product {
	return product{name, []string{"services/" + name}, func(static string) Spec {
		return single("/"+name, filepath.Join(static, name), controllerUser)
	}}
}

func single(at, source, user string) Spec {
	return Spec{Entrypoint: []string{at}, User: user, Files: []File{{Path: at, Source: source}}, CA: true}
}

// The proxy's image has its files where an injected pod calls them.
const proxyDir = "/usr/lib/linkerd"

// netAdmin is CAP_NET_ADMIN (linux/capability.h). linkerd-init does not run as
// root, so that its file must let it have what its container allows.
const netAdmin = 1 << 12

func proxySpec(static string) Spec {
	proxy, helper := proxyDir+"/linkerd2-proxy-identity", proxyDir+"/linkerd2-proxy-init"
	return Spec{
		Entrypoint: []string{proxy},
		User:       nobody,
		Files: []File{
			{Path: proxy, Source: filepath.Join(static, "weft-proxy")},
			{Path: helper, Source: filepath.Join(static, "weft-init"), Capabilities: netAdmin},
		},
		// The helper is what it is called by.
		Links: map[string]string{
			proxyDir + "/linkerd2-network-validator": path.Base(helper),
			proxyDir + "/linkerd-await":              path.Base(helper),
			"/bin/sleep":                             helper,
		},
	}
}

// products are all images of Weft. deploy/images has a Dockerfile for each.
var products = []product{
	service("watcher"), service("destination"), service("policy"), service("identity"),
	service("injector"), service("mirror"), service("heartbeat"),
	{"proxy", []string{"proxy/cmd/weft-proxy", "proxy/cmd/weft-init"}, proxySpec},
	{"cni-plugin", []string{"proxy/cmd/weft-cni"}, func(static string) Spec {
		return single("/weft-cni", filepath.Join(static, "weft-cni"), "0:0") // it writes the machine's files
	}},
	{"debug", []string{"proxy/cmd/weft-debug"}, func(static string) Spec {
		spec := single("/weft-debug", filepath.Join(static, "weft-debug"), "0:0") // it catches packets
		spec.Links = map[string]string{"/bin/true": "/weft-debug"}                // the container's probes
		return spec
	}},
	{"demo-app", []string{"tools/weft/cmd/weft-demo-app"}, func(static string) Spec {
		return single("/demo-app", filepath.Join(static, "weft-demo-app"), nobody)
	}},
}

// natsName is the image that the test bed has instead of the public one.
const natsName = "nats"

func natsSpec(binary string) Spec { return single("/nats-server", binary, nobody) }
