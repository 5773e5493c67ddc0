package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/child"
	"github.com/weftmesh/weft/tools/weft/internal/pki"
	"github.com/weftmesh/weft/tools/weft/internal/spans"
)

// mesh is the running demo.
type mesh struct {
	layout
	certs     *pki.Set
	spans     *spans.Receiver
	control   []*child.Child
	workloads []workload
	children  []*child.Child // of the workloads

	hinted bool // the hints have been printed

	mu     sync.Mutex
	events []string
}

const mostEvents = 3

// tell records a line for the person who watches.
func (m *mesh) tell(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, time.Now().Format("15:04:05 ")+line)
	if over := len(m.events) - mostEvents; over > 0 {
		m.events = slices.Delete(m.events, 0, over)
	}
}

func (m *mesh) said() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events)
}

// start brings everything up, the load generator last, and returns when a
// request has gone all the way through.
func (m *mesh) start(ctx context.Context, step func(string)) error {
	shop, err := readCluster(filepath.Join(m.from, "shop"))
	if err != nil {
		return err
	}
	remote, err := readCluster(filepath.Join(m.from, "far"))
	if err != nil {
		return err
	}
	// Before anything is written: a demo that runs owns the directory, too.
	if err := m.free(append(shop.pods, remote.pods...)); err != nil {
		return err
	}
	if err := m.claim(); err != nil {
		return err
	}
	step("making certificates")
	certs, err := pki.New(filepath.Join(m.root, "pki"), trustDomain, namespace)
	if err != nil {
		return err
	}
	m.certs = certs
	if err := errors.Join(shop.stage(m.shop()), remote.stage(m.far())); err != nil {
		return err
	}
	if err := m.receive(ctx); err != nil {
		return err
	}
	step("starting the control plane")
	for _, p := range plan(m.layout, certs) {
		c, err := child.Start(ctx, p.spec, m.logs(), m.tell)
		if err != nil {
			return err
		}
		m.control = append(m.control, c)
		addr := p.admin
		if addr == "" {
			addr = p.spec.Args[2]
		}
		if err := m.wait(ctx, c, func() error { return ready(ctx, p.admin, addr) }); err != nil {
			return err
		}
	}
	step("injecting and starting the workloads")
	inject, err := newInjector(m.addr(portInjector), certs.Anchors)
	if err != nil {
		return err
	}
	near := []string{m.addr(portPolicy1), m.addr(portPolicy2)}
	for _, group := range []struct {
		pods   []*corev1.Pod
		dir    string
		policy []string
	}{{remote.pods, m.far(), []string{m.addr(portFarPolicy)}}, {shop.pods, m.shop(), near}} {
		for _, pod := range group.pods {
			if err := m.run(ctx, inject, pod, group.dir, group.policy); err != nil {
				return err
			}
		}
	}
	return m.load(ctx, step)
}

// free says whether every address of the demo can be had, and if not, who has it.
func (m *mesh) free(pods []*corev1.Pod) error {
	var addrs []string
	for port := range ports {
		addrs = append(addrs, m.addr(port))
	}
	for _, pod := range pods {
		own := fmt.Sprint(pod.Spec.Containers[0].Ports[0].ContainerPort)
		for _, port := range []string{outboundPort, inboundPort, adminPort, own} {
			addrs = append(addrs, net.JoinHostPort(pod.Status.PodIP, port))
		}
	}
	for _, addr := range addrs {
		lis, err := listen(addr)
		if err == nil {
			_ = lis.Close()
			continue
		}
		why := err.Error()
		if p, ok := errors.AsType[*say.Problem](err); ok {
			why = p.What + "; " + p.Why
		}
		return &say.Problem{
			Code: 1, Err: err, What: "the demo can't have all of its addresses", Why: why,
			Next: "stop that process. Is it another demo? One runs at a time, since workloads have fixed addresses (127.1.0.x); for a port of 127.0.0.1, --port takes others",
		}
	}
	return nil
}

// claim makes the run's directory anew; one that it did not make is left alone.
func (m *mesh) claim() error {
	mark := filepath.Join(m.root, ".made-by-weft-demo")
	if _, err := os.Stat(m.root); err == nil {
		if _, err := os.Stat(mark); err != nil {
			return &say.Problem{
				Code: 1, What: "the demo can't use " + m.root, Why: "the directory exists and no demo made it",
				Next: "name another one with --dir",
			}
		}
		if err := os.RemoveAll(m.root); err != nil {
			return fmt.Errorf("clearing %s: %w", m.root, err)
		}
	}
	for _, dir := range []string{m.logs(), m.pods(), m.mirrored()} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("making the demo's directory: %w", err)
		}
	}
	return os.WriteFile(mark, nil, 0o600)
}

// receive takes the spans of every process, and answers `weft trace`.
func (m *mesh) receive(ctx context.Context) error {
	m.spans = &spans.Receiver{}
	lis, err := listen(m.addr(portSpans))
	if err != nil {
		return err
	}
	pages, err := listen(m.addr(portPages))
	if err != nil {
		_ = lis.Close()
		return err
	}
	srv := &http.Server{Handler: m.spans, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	go func() {
		if err := m.spans.Serve(ctx, lis); err != nil {
			m.tell(err.Error())
		}
	}()
	go func() {
		if err := srv.Serve(pages); err != nil && !errors.Is(err, http.ErrServerClosed) {
			m.tell(err.Error())
		}
	}()
	return nil
}

// run starts one workload's proxy and application and publishes the pod once
// the proxy is ready. The load generator's application waits for load.
func (m *mesh) run(ctx context.Context, inject *injector, pod *corev1.Pod, dir string, policy []string) error {
	meshed, err := inject.inject(ctx, pod)
	if err != nil {
		return err
	}
	w, err := prepare(m.layout, m.certs, meshed, policy)
	if err != nil {
		return err
	}
	proxy, err := child.Start(ctx, w.proxy, m.logs(), m.tell)
	if err != nil {
		return err
	}
	m.children = append(m.children, proxy)
	if !w.isLoad() {
		app, err := child.Start(ctx, w.app, m.logs(), m.tell)
		if err != nil {
			return err
		}
		m.children = append(m.children, app)
		if err := m.wait(ctx, app, func() error { return reachable(ctx, w.port()) }); err != nil {
			return err
		}
	}
	if err := m.wait(ctx, proxy, func() error { return ready(ctx, w.admin(), "") }); err != nil {
		return err
	}
	w.published = filepath.Join(dir, podFile(meshed))
	m.workloads = append(m.workloads, w)
	return publish(dir, filepath.Join(m.pods(), meshed.Name), meshed)
}

func (w workload) isLoad() bool { return w.pod.Labels["app"] == "load" }

// stop ends everything, workloads first, in a few seconds at most.
func (m *mesh) stop() {
	for _, set := range [][]*child.Child{m.children, m.control} {
		var wg sync.WaitGroup
		for _, c := range set {
			wg.Go(func() { c.Stop(4 * time.Second) })
		}
		wg.Wait()
	}
}
