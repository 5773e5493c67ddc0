package validate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/proxy/internal/redirect/redirecttest"
	"github.com/weftmesh/weft/services/kit/say"
)

var quiet = slog.New(slog.DiscardHandler)

func addr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestTargets(t *testing.T) {
	const v4, v6 = "1.1.1.1:20001", "[fd00::1]:20001"
	for _, tt := range []struct {
		name, listen, connect string
		have                  Families
		want                  []string
	}{
		{"IPv4 only", "0.0.0.0:4140", v4, Families{V4: true, V6: true}, []string{v4}},
		{"both", "[::]:4140", v6, Families{V4: true, V6: true}, []string{v6, v4}},
		{"both, asked the other way", "[::]:4140", v4, Families{V4: true, V6: true}, []string{v4, v6}},
		{"an IPv6 proxy in an IPv4 pod", "[::]:4140", v6, Families{V4: true}, []string{v4}},
		{"an IPv6 pod", "[::]:4140", v6, Families{V6: true}, []string{v6}},
		{"no address at all", "[::]:4140", v6, Families{}, []string{v6}},
		{"one address", "127.0.0.1:4140", v4, Families{V4: true, V6: true}, []string{v4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, a := range targets(Config{Listen: addr(tt.listen), Connect: addr(tt.connect)}, tt.have, quiet) {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("targets() (-want +got):\n%s", diff)
			}
		})
	}
}

func plan(t *testing.T, o redirect.Options) redirect.Rules {
	t.Helper()
	o.Inbound, o.UID, o.GID = 4143, 2102, -1
	rules, err := redirect.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestRun(t *testing.T) {
	none := func(_, _ *redirecttest.Side) {}
	with := func(o redirect.Options) func(_, _ *redirecttest.Side) {
		rules := plan(t, o)
		return func(pod, _ *redirecttest.Side) {
			if err := redirect.Apply(rules, redirect.Namespace{FD: pod.FD()}); err != nil {
				t.Error(err)
			}
		}
	}
	both, v4 := redirect.Options{Outbound: 4140, IPv6: true}, redirect.Options{Outbound: 4140}
	for _, tt := range []struct {
		name, listen, connect string
		prepare               func(pod, outside *redirecttest.Side)
		sign                  string // that the failure is the expected one, in the log
		want                  string // of the error; none if empty
	}{
		{"IPv4", "0.0.0.0:4140", redirecttest.ServiceIP + ":20001", with(v4), "", ""},
		{"both", "[::]:4140", "[" + redirecttest.ServiceIP6 + "]:20001", with(both), "", ""},
		{"IPv6 is not redirected", "[::]:4140", "[" + redirecttest.ServiceIP6 + "]:20001", with(v4), "connection refused", "was refused"},
		{"nothing is", "0.0.0.0:4140", redirecttest.ServiceIP + ":20001", none, "connection refused", "was refused"},
		{"to another port", "0.0.0.0:4140", redirecttest.ServiceIP + ":20001", with(redirect.Options{Outbound: 4999}), "connection refused", "another port than 4140"},
		{"no route", "0.0.0.0:4140", redirecttest.ServiceIP + ":20001", func(pod, _ *redirecttest.Side) {
			pod.Run("ip", "route", "del", "default")
		}, "unreachable", "no route"},
		{"somebody else answers", "0.0.0.0:4140", redirecttest.ServiceIP + ":20001", func(_, outside *redirecttest.Side) {
			outside.Serve("a server of somebody else's, which has a long greeting for everybody", "0.0.0.0:20001")
		}, "somebody else answered", "another server answered"},
		{"the port is taken", "0.0.0.0:4140", redirecttest.ServiceIP + ":20001", func(pod, _ *redirecttest.Side) {
			pod.Serve("an early proxy", "127.0.0.1:4140")
		}, "", "address already in use"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod, outside := redirecttest.Network(t)
			tt.prepare(pod, outside)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			log := slog.New(slog.DiscardHandler)
			if tt.sign != "" { // until it fails as expected: a slow machine may time out first
				first := &signal{sign: tt.sign, said: make(chan struct{})}
				log = first.log()
				go func() {
					select {
					case <-first.said:
						cancel()
					case <-ctx.Done():
					}
				}()
			}
			var err error
			pod.Do(func() {
				err = Run(ctx, Config{Listen: addr(tt.listen), Connect: addr(tt.connect), Timeout: time.Minute, Log: log})
			})
			if tt.want == "" {
				if err != nil {
					t.Errorf("Run() = %v", err)
				}
				return
			}
			p, ok := errors.AsType[*say.Problem](err)
			if !ok || p.Exit() != ExitCode || !strings.Contains(p.Why, tt.want) || p.Next == "" {
				t.Errorf("Run() = %v, want a problem that says %q", err, tt.want)
			}
		})
	}
}

// A CNI plugin may be late; the validator goes on trying.
func TestRunWaits(t *testing.T) {
	pod, _ := redirecttest.Network(t)
	rules := plan(t, redirect.Options{Outbound: 4140})
	first := &signal{sign: "not redirected yet", said: make(chan struct{})}
	applied := make(chan error, 1)
	go func() {
		<-first.said
		applied <- redirect.Apply(rules, redirect.Namespace{FD: pod.FD()})
	}()
	var err error
	pod.Do(func() {
		err = Run(t.Context(), Config{
			Listen: addr("0.0.0.0:4140"), Connect: addr(redirecttest.ServiceIP + ":20001"), Timeout: time.Minute, Log: first.log(),
		})
	})
	if err != nil {
		t.Fatalf("Run() = %v", err)
	}
	if err := <-applied; err != nil {
		t.Error(err)
	}
}

func TestRunIsStopped(t *testing.T) {
	pod, _ := redirecttest.Network(t)
	ctx, cancel := context.WithCancel(t.Context())
	first := &signal{sign: "not redirected yet", said: make(chan struct{})}
	go func() { <-first.said; cancel() }()
	var err error
	pod.Do(func() {
		err = Run(ctx, Config{
			Listen: addr("0.0.0.0:4140"), Connect: addr(redirecttest.ServiceIP + ":20001"), Timeout: time.Hour, Log: first.log(),
		})
	})
	if p, ok := errors.AsType[*say.Problem](err); !ok || p.Exit() != ExitCode {
		t.Errorf("Run() = %v", err)
	}
}

// signal is a log that tells when it says something for the first time.
type signal struct {
	sign string
	once sync.Once
	said chan struct{}
}

func (s *signal) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (s *signal) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(s.sign)) {
		s.once.Do(func() { close(s.said) })
	}
	return len(b), nil
}
