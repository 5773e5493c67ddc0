package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/weftmesh/weft/proxy/internal/await"
	"github.com/weftmesh/weft/services/kit/say"
)

// exitSystem is the exit code when the command cannot be run (EX_OSERR).
const exitSystem = 71

// awaitArgs are linkerd-await's.
type awaitArgs struct {
	port              int
	backoff, timeout  duration
	fatal             bool
	shutdown, verbose bool
	command           []string
}

func parseAwait(c call) (awaitArgs, error) {
	a := awaitArgs{backoff: duration(time.Second)}
	fs := flag.NewFlagSet("linkerd-await", flag.ContinueOnError)
	for _, name := range []string{"port", "p"} {
		fs.IntVar(&a.port, name, 4191, "port of the proxy's admin server on loopback")
	}
	for _, name := range []string{"backoff", "b"} {
		fs.Var(&a.backoff, name, "pause after a failed check (default 1s)")
	}
	for _, name := range []string{"timeout", "t"} {
		fs.Var(&a.timeout, name, "give up after that long; without it, never")
	}
	fs.BoolVar(&a.fatal, "timeout-fatal", true, "fail when giving up; otherwise go on without the proxy")
	for _, name := range []string{"shutdown", "S"} {
		fs.BoolVar(&a.shutdown, name, false, "run the command as a child and stop the proxy when it has ended")
	}
	for _, name := range []string{"verbose", "v"} {
		fs.BoolVar(&a.verbose, name, c.env("LINKERD_AWAIT_VERBOSE", "") != "", "say when the wait is skipped")
	}
	if err := parse(fs, c.args, c.stdout); err != nil {
		return a, err
	}
	a.command = fs.Args()
	if a.port < 1 || a.port > 65535 {
		return a, usage(fmt.Sprintf("port is %d, and a port is 1 to 65535", a.port))
	}
	if a.shutdown && len(a.command) == 0 {
		return a, usage("shutdown is asked for, but there is no command whose end to wait for")
	}
	return a, nil
}

// awaitProxy exits with the command's code if there is one, await.ExitTimeout if
// the proxy is not ready in time, and exitSystem if the command can't be run.
func awaitProxy(ctx context.Context, c call) int {
	const who = "linkerd-await"
	a, err := parseAwait(c)
	if err != nil {
		return finish(c, who, err, exitSystem)
	}
	proxy := await.New(a.port)
	for _, name := range []string{"LINKERD_AWAIT_DISABLED", "LINKERD_DISABLED"} {
		if reason := c.env(name, ""); reason != "" {
			if a.verbose {
				fmt.Fprintf(c.stderr, "%s: not waiting for the proxy, since %s is set: %s\n", who, name, reason)
			}
			return c.become(a.command)
		}
	}
	if err := ready(ctx, proxy, a); err != nil {
		if ctx.Err() != nil {
			return 143 // told to end while waiting
		}
		code := finish(c, who, err, await.ExitTimeout)
		if a.fatal {
			return code
		}
	}
	if !a.shutdown {
		return c.become(a.command)
	}
	code := c.child(ctx, a.command)
	// Not ctx: a signal has most likely ended that one.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := proxy.Shutdown(bounded); err != nil {
		say.Print(c.stderr, who, err, say.Plain)
	}
	return code
}

func ready(ctx context.Context, proxy *await.Proxy, a awaitArgs) error {
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(a.timeout))
		defer cancel()
	}
	return proxy.Ready(ctx, time.Duration(a.backoff))
}

// become replaces this process by the command; without one, it is done.
func (c call) become(command []string) int {
	if len(command) == 0 {
		return 0
	}
	path, err := exec.LookPath(command[0])
	if err == nil {
		err = syscall.Exec(path, command, c.environ) //nolint:gosec // running it is what we are for
	}
	return c.cannot(command[0], err)
}

func (c call) cannot(name string, err error) int {
	return finish(c, "linkerd-await", &say.Problem{
		Code: exitSystem, Err: err, What: fmt.Sprintf("the command %q cannot be run", name), Why: err.Error(),
		Next: "name a program that the image has",
	}, exitSystem)
}

// child runs the command and hands it the signal that ends us. It returns its
// exit code, exitSystem if it has none.
func (c call) child(ctx context.Context, command []string) int {
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // it ends by a signal it can handle, not by a kill
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.environ, os.Stdin, c.stdout, c.stderr
	if err := cmd.Start(); err != nil {
		return c.cannot(command[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended meanwhile
		err = <-ended
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
		return exit.ExitCode()
	}
	if err != nil {
		return exitSystem
	}
	return 0
}
