package main

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/say"
)

// list is a flag that holds values separated by commas and adds up when repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	*l = append(*l, strings.Split(s, ",")...)
	return nil
}

// parse reads args. It returns errHelp when help was asked for and given; any
// other error is a problem that exits with redirect.ExitUsage.
func parse(fs *flag.FlagSet, args []string, stdout io.Writer) error {
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return errHelp
	case err != nil:
		return usage(err.Error())
	}
	return nil
}

var errHelp = errors.New("help was asked for")

// usage is a problem with the arguments.
func usage(why string) error {
	return &say.Problem{
		Code: redirect.ExitUsage, What: "the arguments make no sense, so nothing was done", Why: why,
		Next: "call it with --help to see what it takes",
	}
}

// finish tells a person about err and is the exit code; failed is that of errors
// which name none.
func finish(c call, who string, err error, failed int) int {
	if err == nil || errors.Is(err, errHelp) {
		return 0
	}
	say.Print(c.stderr, who, err, say.Plain)
	if p, ok := errors.AsType[*say.Problem](err); ok && p.Code > 0 {
		return p.Exit()
	}
	return failed
}

// logging is the pair of flags that Linkerd's programs have.
type logging struct{ format, level string }

func (l *logging) register(fs *flag.FlagSet, format, level string) {
	fs.StringVar(&l.format, "log-format", format, "plain or json")
	fs.StringVar(&l.level, "log-level", level, "trace, debug, info, warn, error or off")
}

// logger is built from the flags. A level may be a filter with targets, as
// Linkerd's Rust programs take it ("info,linkerd=debug"): what counts here is
// its part without a target.
func (l *logging) logger(w io.Writer) (*slog.Logger, error) {
	level := slog.LevelInfo
	for part := range strings.SplitSeq(l.level, ",") {
		if strings.Contains(part, "=") {
			continue
		}
		known, ok := levels[strings.ToLower(strings.TrimSpace(part))]
		if !ok {
			return nil, usage("log-level is " + l.level + ", and it is one of trace, debug, info, warn, error, off")
		}
		level = known
	}
	opts := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	case "plain", "":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	}
	return nil, usage("log-format is " + l.format + ", and it is plain or json")
}

var levels = map[string]slog.Level{
	"trace": slog.LevelDebug, "debug": slog.LevelDebug, "info": slog.LevelInfo, "": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn, "error": slog.LevelError,
	"fatal": slog.LevelError, "panic": slog.LevelError, "off": slog.LevelError + 4,
}

// duration is a flag that takes Linkerd's units: ms, s, m, h and d, and a bare 0.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(s string) error {
	s = strings.TrimSpace(s)
	digits, isDays := strings.CutSuffix(s, "d")
	if isDays {
		s = digits + "h"
	}
	v, err := time.ParseDuration(s)
	if err == nil && isDays {
		if v > (1<<63-1)/24 {
			err = errors.New("too long")
		}
		v *= 24
	}
	if err != nil || v < 0 {
		return errors.New("not a duration such as 500ms, 10s, 2m or 1d")
	}
	*d = duration(v)
	return nil
}
