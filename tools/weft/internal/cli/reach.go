package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/ask"
	"github.com/weftmesh/weft/tools/weft/internal/kube"
)

const (
	// busClient is the Secret with which the command gets onto the bus.
	busClient   = "weft-bus-cli"
	busSelector = "linkerd.io/control-plane-component=nats"
	busPort     = 4222
	// reachTime is how long a connection through the API server may take to stand.
	reachTime = 10 * time.Second
)

// throughCluster leads cfg to the bus of the mesh in the kubeconfig's cluster.
// Where no cluster is known at all, cfg stays as it is. The key of the client
// certificate never leaves memory.
func throughCluster(ctx context.Context, flags *kube.Flags, cfg ask.Config) (ask.Config, error) {
	client, err := flags.Connect()
	if err != nil {
		if kube.NoCluster(err) && flags.Context == "" {
			return cfg, nil
		}
		return cfg, err
	}
	ns := client.Namespace()
	secret, err := client.Get(ctx, kube.Secrets, ns, busClient)
	switch {
	case apierrors.IsNotFound(err):
		return cfg, &say.Problem{
			What: "no mesh is to be found in namespace " + ns, Why: "Secret " + busClient + ", with which the command gets onto the bus, does not exist there",
			Next: "name another namespace with --linkerd-namespace, another cluster with --context, or a bus with -bus.servers", Err: err,
		}
	case err != nil:
		return cfg, err
	}
	security, err := busTLS(secret, ns)
	if err != nil {
		return cfg, err
	}
	pod, err := client.ReadyPod(ctx, ns, busSelector)
	if err != nil {
		return cfg, err
	}
	said := busValues(ctx, client)
	cfg.Bus.Cluster, cfg.HistoryDomain = cmp.Or(cfg.Bus.Cluster, said.Cluster), said.History.Domain
	cfg.Bus.Servers = []string{"tls://" + security.ServerName}
	cfg.Wait = max(cmp.Or(cfg.Wait, reachTime), time.Second)
	way := &forward{ctx: ctx, client: client, ns: ns, pod: pod.GetName()}
	cfg.Options = []nats.Option{nats.SetCustomDialer(way), nats.SkipHostLookup(), nats.Secure(security), nats.Timeout(reachTime)}
	cfg.Explain = way.explain
	return cfg, nil
}

// busTLS is how the command shows itself to the bus and knows it.
func busTLS(secret *unstructured.Unstructured, ns string) (*tls.Config, error) {
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	part := func(key string) []byte {
		text, err := base64.StdEncoding.DecodeString(data[key])
		if err != nil {
			return nil // then it is missing
		}
		return text
	}
	pair, err := tls.X509KeyPair(part("tls.crt"), part("tls.key"))
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(part("ca.crt")) {
		err = errors.New("ca.crt holds no certificate")
	}
	if err != nil {
		return nil, &say.Problem{
			What: fmt.Sprintf("Secret %s/%s cannot be used", ns, busClient), Why: err.Error(),
			Next: "it needs tls.crt, tls.key and ca.crt; `weft upgrade` makes it anew where the mesh makes its own certificates", Err: err,
		}
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots,
		ServerName: fmt.Sprintf("weft-nats.%s.svc", ns),
	}, nil
}

// busSettings are those of the mesh's settings that tell what is on its bus.
type busSettings struct {
	Cluster string `json:"cluster"` // the name of the log
	History struct {
		Domain *string `json:"domain"`
	} `json:"history"`
}

// busValues reads them; empty if the mesh's settings do not tell.
func busValues(ctx context.Context, client *kube.Client) busSettings {
	cm, err := client.Get(ctx, kube.ConfigMaps, client.Namespace(), "linkerd-config")
	if err != nil {
		return busSettings{}
	}
	text, _, _ := unstructured.NestedString(cm.Object, "data", "values")
	var values struct {
		Bus busSettings `json:"bus"`
	}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		return busSettings{}
	}
	return values.Bus
}

// forward makes nats.go's connections lead to a pod.
type forward struct {
	ctx     context.Context // nats.go gives its dialers none
	client  *kube.Client
	ns, pod string

	mu   sync.Mutex
	last error // why the last attempt failed
}

// Dial opens a connection to the bus; where it leads is fixed.
func (f *forward) Dial(string, string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(f.ctx, reachTime)
	defer cancel()
	conn, err := f.client.Dial(ctx, f.ns, f.pod, busPort)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = err
	return conn, err
}

// explain says why no bus answers.
func (f *forward) explain(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil {
		return f.last
	}
	return &say.Problem{
		What: "the bus of the mesh in namespace " + f.ns + " does not answer",
		Why:  fmt.Sprintf("pod %s lets us connect, but not in as a client", f.pod),
		Next: fmt.Sprintf("see whether Secret %s has expired (weft check) and what the bus says: kubectl -n %s logs %s", busClient, f.ns, f.pod), Err: err,
	}
}
