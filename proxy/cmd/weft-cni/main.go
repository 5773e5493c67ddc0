// Command weft-cni redirects pods' traffic to their proxies from outside the pods,
// as a CNI plugin. It is one binary with these jobs:
//
//	(called by a container runtime)   the plugin linkerd-cni
//	install                           puts the plugin on this node and keeps it there
//	ready                             exits 0 if the plugin is in place (a readiness probe)
//	repair                            has pods of this node created anew that were not redirected
//
// It exits 0 when done, 64 when its arguments make no sense, otherwise 1.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftmesh/weft/proxy/internal/cni"
	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, process{os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// process is what a process is given.
type process struct {
	args           []string
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run is the whole process; it returns the exit code.
func run(ctx context.Context, p process) int {
	if len(p.args) == 0 && p.getenv("CNI_COMMAND") != "" {
		return cni.Call{Getenv: p.getenv, Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr}.Run(ctx)
	}
	jobs := map[string]func(context.Context, process) int{"install": install, "ready": ready, "repair": repairJob}
	if len(p.args) > 0 {
		if do, ok := jobs[p.args[0]]; ok {
			p.args = p.args[1:]
			return do(ctx, p)
		}
		if p.args[0] == "version" || p.args[0] == "-version" || p.args[0] == "--version" {
			fmt.Fprintln(p.stdout, build.Version())
			return 0
		}
	}
	fmt.Fprint(p.stderr, "weft-cni: which job?\n"+
		"  why:   it was neither called by a container runtime (CNI_COMMAND is not set), nor told what to do\n"+
		"  next:  weft-cni install|ready|repair, each with --help\n")
	return redirect.ExitUsage
}
