package cluster

import (
	"fmt"
	"path"

	"github.com/weftmesh/weft/e2e/internal/node"
)

// The components of a node, by their names.
const (
	Etcd       = "etcd"
	APIServer  = "kube-apiserver"
	Controller = "kube-controller-manager"
	Scheduler  = "kube-scheduler"
	Containerd = "containerd"
	Kubelet    = "kubelet"
	KubeProxy  = "kube-proxy"
)

// Where a node's files are, inside the node.
const (
	kubeEtc          = "/etc/kubernetes"
	pkiDir           = kubeEtc + "/pki"
	containerdSocket = "/run/containerd/containerd.sock"
)

// certs names the files of a directory of certificates.
type certs string

func (c certs) crt(name string) string { return path.Join(string(c), name+".crt") }
func (c certs) key(name string) string { return path.Join(string(c), name+".key") }

// part is a component that hyperkube holds, or a command of the machine.
func part(name, file string, args ...string) node.Component {
	return node.Component{Name: name, Path: file, Args: args}
}

const hyperkube = node.KubeDir + "/hyperkube"

// controlParts are the components of a cluster's first node only.
func controlParts(p place, etcd string) []node.Component {
	c, ip := certs(pkiDir), p.network.Node(p.number, 1).String()
	return []node.Component{
		part(Etcd, etcd, etcdArgs("/var/lib/etcd", "http://127.0.0.1:2379", "http://127.0.0.1:2380")...),
		part(APIServer, hyperkube, append(apiArgs(c, "http://127.0.0.1:2379", p.services()),
			"--advertise-address="+ip,
			"--secure-port="+fmt.Sprint(apiPort),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--kubelet-client-certificate="+c.crt("apiserver-kubelet-client"),
			"--kubelet-client-key="+c.key("apiserver-kubelet-client"),
			"--kubelet-certificate-authority="+c.crt("ca"),
			"--kubelet-preferred-address-types=InternalIP",
			"--proxy-client-cert-file="+c.crt("front-proxy-client"),
			"--proxy-client-key-file="+c.key("front-proxy-client"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-client-ca-file="+c.crt("front-proxy-ca"),
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-username-headers=X-Remote-User",
		)...),
		part(Controller, hyperkube, append(controllerArgs(c, kubeEtc+"/controller.kubeconfig"),
			"--requestheader-client-ca-file="+c.crt("front-proxy-ca"),
		)...),
		part(Scheduler, hyperkube,
			"--kubeconfig="+kubeEtc+"/scheduler.kubeconfig",
			"--authentication-kubeconfig="+kubeEtc+"/scheduler.kubeconfig",
			"--authorization-kubeconfig="+kubeEtc+"/scheduler.kubeconfig",
			"--leader-elect=false",
			"--kube-api-qps=300", "--kube-api-burst=600",
			"--bind-address=127.0.0.1",
			"--tls-cert-file="+c.crt("scheduler"), "--tls-private-key-file="+c.key("scheduler"),
		),
	}
}

// workerParts are the components of every node.
func workerParts(p place, number int, containerd string) []node.Component {
	name := nodeName(number)
	return []node.Component{
		part(Containerd, containerd, "--config", "/etc/containerd/config.toml"),
		part(Kubelet, hyperkube,
			"--config="+kubeEtc+"/kubelet.yaml",
			"--kubeconfig="+kubeEtc+"/kubelet.kubeconfig",
			"--hostname-override="+name,
			"--node-ip="+p.node(number),
			"--node-labels=topology.kubernetes.io/region=test,topology.kubernetes.io/zone="+zone(number),
		),
		part(KubeProxy, hyperkube, "--config="+kubeEtc+"/kube-proxy.yaml"),
	}
}

func nodeName(number int) string { return fmt.Sprintf("n%d", number) }

// zone puts each node into one of its own, so that spreading over zones can be tested.
func zone(number int) string { return fmt.Sprintf("zone-%d", number) }

// etcdArgs trade safety for speed: the data is gone with the cluster anyway.
func etcdArgs(dir, clients, peers string) []string {
	return []string{
		"--data-dir=" + dir,
		"--listen-client-urls=" + clients, "--advertise-client-urls=" + clients,
		"--listen-peer-urls=" + peers, "--initial-advertise-peer-urls=" + peers, "--initial-cluster=default=" + peers,
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

// apiArgs are what an API server needs with and without nodes.
func apiArgs(c certs, etcd, services string) []string {
	return []string{
		"--etcd-servers=" + etcd,
		"--service-cluster-ip-range=" + services,
		"--allow-privileged=true",
		"--client-ca-file=" + c.crt("ca"),
		"--tls-cert-file=" + c.crt("apiserver"), "--tls-private-key-file=" + c.key("apiserver"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + path.Join(string(c), "sa.pub"),
		"--service-account-signing-key-file=" + c.key("sa"),
	}
}

// controllerArgs raise the client's limits: with the usual 20 requests a second
// the controllers take five seconds to start.
func controllerArgs(c certs, kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + c.crt("ca"), "--root-ca-file=" + c.crt("ca"),
		"--service-account-private-key-file=" + c.key("sa"),
		"--cluster-signing-cert-file=" + c.crt("ca"), "--cluster-signing-key-file=" + c.key("ca"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--kube-api-qps=300", "--kube-api-burst=600",
		"--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=10",
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + c.crt("controller"), "--tls-private-key-file=" + c.key("controller"),
	}
}
