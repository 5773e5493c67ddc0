package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/cni/repair"
	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/say"
)

// repairPods runs until a signal ends it.
func repairPods(ctx context.Context, p process) error {
	fs := flag.NewFlagSet("weft-cni repair", flag.ContinueOnError)
	r := &repair.Repairer{Log: p.logger()}
	const prefix = "LINKERD_CNI_REPAIR_CONTROLLER_"
	var admin, account string
	fs.StringVar(&r.Node, "node-name", p.getenv(prefix+"NODE_NAME"), "the node whose pods are watched ("+prefix+"NODE_NAME)")
	fs.StringVar(&r.Name, "controller-pod-name", p.getenv(prefix+"POD_NAME"), "this pod, for events ("+prefix+"POD_NAME)")
	fs.StringVar(&admin, "admin-addr", ":9990", "where /live, /ready and /metrics are served")
	fs.StringVar(&account, "account-dir", apiserver.AccountDir, "directory of the service account's token and ca.crt")
	for _, name := range []string{"log-level", "log-format"} {
		fs.String(name, "", "accepted for Linkerd's sake; it means nothing here")
	}
	if code, done := p.parse(fs); done {
		return exit(code)
	}
	if r.Node == "" {
		return &say.Problem{Code: redirect.ExitUsage, What: "the node is not known", Next: "set " + prefix + "NODE_NAME from the field spec.nodeName"}
	}
	var err error
	if r.API, err = apiserver.InCluster(p.getenv, account); err != nil {
		return &say.Problem{Err: err, What: "the API server cannot be asked", Why: err.Error(), Next: "run it in a pod that has a service account"}
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.Metrics = repair.NewMetrics(reg)

	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", admin)
	if err != nil {
		return &say.Problem{Err: err, What: "the admin server cannot listen on " + admin, Why: err.Error(), Next: "choose another -admin-addr"}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	for _, path := range []string{"/live", "/ready"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, path[1:]) })
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	defer func() { _ = srv.Close() }() // scrapes in flight are lost, which the next one makes good

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan error, 1)
	go func() { watched <- r.Run(ctx) }()
	select {
	case err := <-watched:
		return err
	case err := <-served:
		cancel()
		return errors.Join(err, <-watched)
	}
}

// exit is an error that only carries an exit code; what there is to say was said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func repairJob(ctx context.Context, p process) int {
	err := repairPods(ctx, p)
	if code, ok := errors.AsType[exit](err); ok {
		return int(code)
	}
	return p.finish("weft-cni repair", err)
}
