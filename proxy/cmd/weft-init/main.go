// Command weft-init prepares a pod for its proxy. It is one binary with four
// jobs, chosen by the name it is called by or by its first argument:
//
//	linkerd2-proxy-init, init              sends the pod's traffic to the proxy
//	linkerd2-network-validator, validate   proves that this works
//	linkerd-await, await                   waits until the proxy is ready
//	sleep                                  waits (an image from scratch has no sleep)
//
// Each takes the arguments of the Linkerd program of that name. It exits 0 when
// done, 64 when its arguments make no sense, and otherwise as each job says.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args, os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// call is what a job is given.
type call struct {
	args           []string
	environ        []string
	stdout, stderr io.Writer
}

type job func(context.Context, call) int

// jobs by every name they go by.
var jobs = map[string]job{
	"linkerd2-proxy-init": initialize, "init": initialize,
	"linkerd2-network-validator": validateNetwork, "validate": validateNetwork,
	"linkerd-await": awaitProxy, "await": awaitProxy,
	"sleep": sleep,
}

// run is the whole process: args begins with the program's name. It returns the
// exit code.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	c := call{environ: environ, stdout: stdout, stderr: stderr}
	if len(args) > 0 {
		if do, ok := jobs[filepath.Base(args[0])]; ok {
			c.args = args[1:]
			return do(ctx, c)
		}
		args = args[1:]
	}
	if len(args) > 0 {
		switch args[0] {
		case "version", "-version", "--version":
			fmt.Fprintln(stdout, build.Version())
			return 0
		}
		if do, ok := jobs[args[0]]; ok {
			c.args = args[1:]
			return do(ctx, c)
		}
	}
	fmt.Fprint(stderr, "weft-init: which job?\n"+
		"  why:   it is neither called by the name of one, nor is one its first argument\n"+
		"  next:  weft-init init|validate|await|sleep, each with --help\n")
	return redirect.ExitUsage
}
