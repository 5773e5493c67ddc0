// Package run starts and stops a process the same way for every service:
//
//	func main() { run.Main("destination", build) }
//
// build wires the service and starts nothing; the parts it names run when it
// has returned, start in the order they were named and stop in reverse. A part
// runs until its context is done and then returns; what it may still do after
// that must fit in Grace(ctx).
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/limits"
	"github.com/weftmesh/weft/services/kit/say"
)

// What a process's end means to whoever started it.
const (
	ExitStopped = 0  // asked to stop, and did
	ExitFailed  = 1  // a part failed, or would not stop in time
	ExitConfig  = 64 // the settings are wrong (sysexits' EX_USAGE); starting again won't help
)

// Main runs the service and exits the process. The first SIGINT or SIGTERM
// stops it, the second ends it at once. The context given to build is done
// when the process begins to stop.
func Main(name string, build func(ctx context.Context, s *Service) error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	os.Exit(execute(name, build, world{
		args:    os.Args[1:],
		out:     os.Stdout,
		err:     os.Stderr,
		signals: signals,
		exit:    os.Exit,
	}))
}

// world is what Main needs of the process.
type world struct {
	args     []string
	out, err io.Writer
	signals  <-chan os.Signal
	exit     func(code int)
}

// stopped is the cause of a context that ended because the process stops.
var errStopped = errors.New("the process is stopping")

// execute is Main without the exit: it returns the exit code.
func execute(name string, wire func(context.Context, *Service) error, w world) int {
	if len(w.args) == 1 && (w.args[0] == "-version" || w.args[0] == "--version") {
		fmt.Fprintf(w.out, "weft-%s %s\n", name, build.Version())
		return ExitStopped
	}
	s := newService(name)
	s.limits = limits.Apply()

	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	done := make(chan struct{})
	defer close(done)
	go watch(w, done, func() { stop(errStopped) })

	if err := wire(ctx, s); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return ExitStopped
		}
		return report(w, name, err)
	}
	err := s.run(ctx, stop)
	if err != nil {
		return report(w, name, err)
	}
	slog.Info("stopped")
	return ExitStopped
}

// watch turns the first signal into a stop and the second into an exit.
func watch(w world, done <-chan struct{}, stop func()) {
	for count := 1; ; count++ {
		select {
		case <-done:
			return
		case sig := <-w.signals:
			if count > 1 {
				slog.Warn("exiting at once", "signal", sig.String())
				w.exit(ExitFailed)
				return
			}
			slog.Info("stopping", "signal", sig.String())
			stop()
		}
	}
}

// report tells a person why the process ends and returns the exit code.
func report(w world, name string, err error) int {
	who := "weft-" + name
	if help, ok := errors.AsType[*conf.Help](err); ok {
		fmt.Fprint(w.out, help.Text)
		return ExitStopped
	}
	if wrong, ok := errors.AsType[*conf.Error](err); ok {
		say.Print(w.err, who, &say.Problem{
			What: "the settings are wrong",
			Why:  wrong.Error(),
			Next: "correct the above; -help lists every setting",
			Err:  err,
		}, say.Plain)
		return ExitConfig
	}
	if problem, ok := errors.AsType[*say.Problem](err); ok {
		say.Print(w.err, who, err, say.Verbose)
		return problem.Exit()
	}
	slog.Error("failed", "error", err.Error())
	return ExitFailed
}
