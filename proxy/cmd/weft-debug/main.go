// Command weft-debug is the debug container of a meshed pod: it tells the
// connections that begin and end in the pod's network, or catches their packets
// into a file for Wireshark. It is the only program of its image, which has no
// shell.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weftmesh/weft/proxy/internal/capture"
	"github.com/weftmesh/weft/services/kit/build"
	"github.com/weftmesh/weft/services/kit/say"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Main(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes, as the other programs have them.
const (
	exitFailed = 1
	exitUsage  = 64
)

type options struct {
	port    uint
	file    string
	every   bool
	count   int
	version bool
}

// Main runs the command and returns its exit code.
func Main(ctx context.Context, args []string, out, errOut io.Writer) int {
	if filepath.Base(args[0]) == "true" {
		return 0 // what the container's probes call: some clusters demand probes
	}
	var o options
	fs := flag.NewFlagSet("weft-debug", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.Usage = func() {
		_, _ = fmt.Fprint(errOut, "weft-debug tells the TCP connections that begin and end in this pod's network.\n\n"+
			"  kubectl logs POD -c linkerd-debug\n"+
			"  kubectl exec POD -c linkerd-debug -- /weft-debug -all -port 8080\n"+
			"  kubectl exec POD -c linkerd-debug -- /weft-debug -w - > pod.pcap\n\n")
		fs.PrintDefaults()
	}
	fs.UintVar(&o.port, "port", 0, "tell only what is from or to this port; 0 is any")
	fs.StringVar(&o.file, "w", "", "write the packets to this file (pcap) instead of lines; - is standard output")
	fs.BoolVar(&o.every, "all", false, "tell every packet, not only where connections begin and end")
	fs.IntVar(&o.count, "count", 0, "end after so many packets; 0 is never")
	fs.BoolVar(&o.version, "version", false, "print the version")
	err := fs.Parse(args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	case o.port > 65535 || o.count < 0 || fs.NArg() > 0:
		fs.Usage()
		return exitUsage
	case o.version:
		_, _ = fmt.Fprintln(out, build.Version())
		return 0
	}
	if err := o.run(ctx, out); err != nil && ctx.Err() == nil {
		say.Print(errOut, "weft-debug", err, say.Plain)
		return exitFailed
	}
	return 0
}

func (o options) run(ctx context.Context, out io.Writer) (err error) {
	socket, err := capture.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	tell := lines(out)
	if o.file != "" {
		if o.file != "-" {
			file, problem := os.Create(o.file)
			if problem != nil {
				return &say.Problem{What: "cannot write " + o.file, Why: problem.Error(), Next: "name a file in a directory that can be written, or - for standard output", Err: problem}
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			out = file
		}
		// Each packet as it comes: whoever reads the pipe waits for it.
		packets, err := capture.NewFile(out)
		if err != nil {
			return err
		}
		tell = func(at time.Time, packet []byte, _ capture.Segment) error { return packets.Write(at, packet) }
	}
	return o.follow(ctx, socket, tell)
}

type source interface {
	Read(ctx context.Context, buf []byte) (int, error)
}

// follow tells the packets that are wanted, until ctx ends.
func (o options) follow(ctx context.Context, from source, tell func(time.Time, []byte, capture.Segment) error) error {
	buf := make([]byte, capture.Longest)
	for told := 0; o.count == 0 || told < o.count; {
		n, err := from.Read(ctx, buf)
		if err != nil {
			return err
		}
		s, ok := capture.Parse(buf[:n])
		if !ok || !s.Of(uint16(o.port)) || o.file == "" && !o.every && !s.Turns() {
			continue
		}
		if err := tell(time.Now(), buf[:n], s); err != nil {
			return err
		}
		told++
	}
	return nil
}

func lines(out io.Writer) func(time.Time, []byte, capture.Segment) error {
	w := bufio.NewWriter(out)
	return func(at time.Time, _ []byte, s capture.Segment) error {
		_, _ = fmt.Fprintln(w, at.UTC().Format("15:04:05.000000"), s) // Flush has the error
		return w.Flush()
	}
}
