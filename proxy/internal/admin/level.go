package admin

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// off is above every level that is logged.
const off = slog.Level(100)

// A Level is the log level as a tracing filter says it, such as
// "warn,linkerd=info". Directives for the targets linkerd and weft are about
// this proxy and win over the bare one; those for other targets are about
// libraries that it does not have.
type Level struct {
	level  slog.LevelVar
	filter atomic.Pointer[string]
}

// NewLevel reads a filter.
func NewLevel(filter string) (*Level, error) {
	l := new(Level)
	return l, l.Set(filter)
}

// Set replaces the filter; a bad one changes nothing.
func (l *Level) Set(filter string) error {
	level, err := parseFilter(filter)
	if err != nil {
		return err
	}
	l.level.Set(level)
	l.filter.Store(&filter)
	return nil
}

// String is the filter in use.
func (l *Level) String() string {
	if f := l.filter.Load(); f != nil {
		return *f
	}
	return ""
}

// Level makes it a slog.Leveler.
func (l *Level) Level() slog.Level { return l.level.Level() }

func parseFilter(filter string) (slog.Level, error) {
	bare, ours, hasOurs := slog.LevelError, slog.LevelError, false
	for d := range strings.SplitSeq(filter, ",") {
		if d = strings.TrimSpace(d); d == "" {
			continue
		}
		target, name, scoped := strings.Cut(d, "=")
		if !scoped {
			if level, ok := named(d); ok {
				bare = level
				continue
			}
			target, name = d, "trace" // a target alone shows everything
		}
		level, ok := named(name)
		if !ok || !validTarget(target) {
			return 0, fmt.Errorf("reading the log filter: bad directive %q", d)
		}
		if !own(target) {
			continue
		}
		if !hasOurs || level < ours { // there is one level for all that is ours
			ours = level
		}
		hasOurs = true
	}
	if hasOurs {
		return ours, nil
	}
	return bare, nil
}

// own reports whether a module is the proxy's: linkerd, linkerd_app::inbound, weft…
func own(module string) bool {
	for _, root := range []string{"linkerd", "weft"} {
		rest, ok := strings.CutPrefix(module, root)
		if ok && (rest == "" || strings.HasPrefix(rest, "_") || strings.HasPrefix(rest, "::")) {
			return true
		}
	}
	return false
}

func named(s string) (slog.Level, bool) {
	switch strings.ToLower(s) {
	case "off", "0":
		return off, true
	case "error", "1":
		return slog.LevelError, true
	case "warn", "2":
		return slog.LevelWarn, true
	case "info", "3":
		return slog.LevelInfo, true
	case "debug", "4":
		return slog.LevelDebug, true
	case "trace", "5":
		return slog.LevelDebug - 4, true
	}
	return 0, false
}

// validTarget accepts module paths and span filters such as [{headers}].
func validTarget(s string) bool {
	if s == "" || len(s) > 200 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && !strings.ContainsRune("_:-.[]{}\"", rune(c)) {
			return false
		}
	}
	return true
}
