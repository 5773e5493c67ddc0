package whatif

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/tools/weft/internal/diag"
	"github.com/weftmesh/weft/tools/weft/internal/diag/scrape"
)

// gatherTime bounds the reading of all proxies' metrics.
const gatherTime = 5 * time.Minute

// gathered is what proxies told.
type gathered struct {
	flows []Flow
	asked int
	// silent are the pods that did not answer, with the reason.
	silent []string
}

// fromCluster asks the proxies of a namespace, of all if it is empty. clients of
// which only the identity is known get the address of a pod that has it.
func fromCluster(ctx context.Context, d diag.Door, namespace string) (gathered, error) {
	pods, err := diag.Pods(ctx, d, "")
	if err != nil {
		return gathered{}, fmt.Errorf("listing pods: %w", err)
	}
	addresses := map[string]string{} // by identity
	var meshed []corev1.Pod
	for i := range pods {
		p := &pods[i]
		if len(scrape.Admin(p, proxyAdmin)) == 0 || p.Status.Phase != corev1.PodRunning {
			continue
		}
		if id := diag.Identity(p); id != "" && addresses[id] == "" {
			addresses[id] = p.Status.PodIP
		}
		if namespace == "" || p.Namespace == namespace {
			meshed = append(meshed, *p)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	type told struct {
		flows []Flow
		err   error
	}
	var out gathered
	for i, t := range scrape.Each(ctx, meshed, func(ctx context.Context, p corev1.Pod) told {
		page, err := scrape.Get(ctx, d, scrape.Admin(&p, proxyAdmin)[0])
		if err != nil {
			return told{err: err}
		}
		flows, err := flowsOf(p.Namespace+"/"+p.Name, page)
		return told{flows, err}
	}) {
		p := &meshed[i]
		out.add(p.Namespace+"/"+p.Name, workloadOf(p), t.flows, t.err)
	}
	for i, f := range out.flows {
		if f.To != "" && f.Address == "" {
			out.flows[i].Address = addresses[f.Client]
		}
	}
	return out, nil
}

func (g *gathered) add(pod, workload string, flows []Flow, err error) {
	g.asked++
	if err != nil {
		g.silent = append(g.silent, pod+": "+strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	for _, f := range flows {
		f.Workload = workload
		g.flows = append(g.flows, f)
	}
}

func proxyAdmin(port string) bool { return port == scrape.ProxyAdmin }

// workloadOf names what a pod belongs to: of a ReplicaSet's pods the Deployment.
func workloadOf(p *corev1.Pod) string {
	if len(p.OwnerReferences) == 0 {
		return p.Namespace + "/" + p.Name
	}
	name := p.OwnerReferences[0].Name
	if p.OwnerReferences[0].Kind == "ReplicaSet" {
		name = strings.TrimSuffix(name, "-"+p.Labels["pod-template-hash"])
	}
	return p.Namespace + "/" + name
}

// fromProxies asks proxies by address, without Kubernetes: NAMESPACE/POD=HOST:PORT.
func fromProxies(ctx context.Context, named []string) gathered {
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	var out gathered
	for _, one := range named {
		pod, address, _ := strings.Cut(one, "=")
		page, err := scrape.Get(ctx, direct(address), scrape.Target{})
		var flows []Flow
		if err == nil {
			flows, err = flowsOf(pod, page)
		}
		out.add(pod, pod, flows, err)
	}
	return out
}

// direct dials one address whatever it is asked for.
type direct string

func (a direct) Dial(ctx context.Context, _, _ string, _ int) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", string(a))
	if err != nil {
		return nil, fmt.Errorf("connecting: %w", err)
	}
	return conn, nil
}
