package run

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/say"
)

// diary records what the parts of a test did, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

func (d *diary) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// machine is a fake process around execute.
type machine struct {
	out, err bytes.Buffer
	signals  chan os.Signal
	exits    []int
}

func (m *machine) world(args ...string) world {
	m.signals = make(chan os.Signal, 2)
	return world{args: args, out: &m.out, err: &m.err, signals: m.signals, exit: func(code int) { m.exits = append(m.exits, code) }}
}

func TestPartsStartInOrderAndStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m machine
		var d diary
		w := m.world()
		code := make(chan int, 1)
		go func() {
			code <- execute("test", func(_ context.Context, s *Service) error {
				for _, name := range []string{"a", "b", "c"} {
					s.Part(name, func(ctx context.Context) error {
						d.add("start " + name)
						<-ctx.Done()
						<-time.After(time.Second) // finishing work, in virtual time
						d.add("stop " + name)
						return context.Cause(ctx)
					})
				}
				return nil
			}, w)
		}()
		synctest.Wait()
		started := d.read()
		slices.Sort(started) // goroutines begin together; the order of go statements is all we promise
		if diff := cmp.Diff([]string{"start a", "start b", "start c"}, started); diff != "" {
			t.Errorf("started (-want +got):\n%s", diff)
		}
		m.signals <- syscall.SIGTERM
		if got := <-code; got != ExitStopped {
			t.Errorf("exit code = %d, want %d", got, ExitStopped)
		}
		if diff := cmp.Diff([]string{"stop c", "stop b", "stop a"}, d.read()[3:]); diff != "" {
			t.Errorf("stopped (-want +got):\n%s", diff)
		}
	})
}

func TestFailingPartStopsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m machine
		var stopped bool
		got := execute("test", func(_ context.Context, s *Service) error {
			s.Part("steady", func(ctx context.Context) error {
				<-ctx.Done()
				stopped = true
				return nil
			})
			s.Part("weak", func(context.Context) error {
				return &say.Problem{What: "the disk is full", Next: "make room"}
			})
			return nil
		}, m.world())
		if got != ExitFailed || !stopped {
			t.Errorf("exit code = %d, other part stopped = %t, want %d and true", got, stopped, ExitFailed)
		}
		want := "weft-test: the disk is full\n  next:  make room\n  while: weak: the disk is full (next: make room)\n"
		if diff := cmp.Diff(want, m.err.String()); diff != "" {
			t.Errorf("stderr (-want +got):\n%s", diff)
		}
	})
}

func TestPanicInAPartIsAFailure(t *testing.T) {
	var m machine
	got := execute("test", func(_ context.Context, s *Service) error {
		s.Part("wild", func(context.Context) error { panic("boom") })
		return nil
	}, m.world())
	if got != ExitFailed {
		t.Errorf("exit code = %d, want %d", got, ExitFailed)
	}
}

func TestPartThatReturnsNilIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m machine
		w := m.world()
		code := make(chan int, 1)
		go func() {
			code <- execute("test", func(_ context.Context, s *Service) error {
				s.Part("once", func(context.Context) error { return nil })
				s.Part("steady", func(ctx context.Context) error { <-ctx.Done(); return nil })
				return nil
			}, w)
		}()
		synctest.Wait()
		select {
		case got := <-code:
			t.Fatalf("ended with %d while a part was running", got)
		default:
		}
		m.signals <- syscall.SIGINT
		if got := <-code; got != ExitStopped {
			t.Errorf("exit code = %d, want %d", got, ExitStopped)
		}
	})
}

func TestProcessEndsWhenEveryPartIsDone(t *testing.T) {
	var m machine
	got := execute("test", func(_ context.Context, s *Service) error {
		s.Part("once", func(context.Context) error { return nil })
		return nil
	}, m.world())
	if got != ExitStopped {
		t.Errorf("exit code = %d, want %d", got, ExitStopped)
	}
}

func TestGraceIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m machine
		w := m.world()
		left := make(chan time.Duration, 1)
		code := make(chan int, 1)
		release := make(chan struct{})
		begin := time.Now()
		go func() {
			code <- execute("test", func(_ context.Context, s *Service) error {
				s.SetGrace(10 * time.Second)
				s.Part("late", func(ctx context.Context) error {
					<-ctx.Done()
					left <- Grace(ctx)
					<-release
					return nil
				})
				s.Part("slow", func(ctx context.Context) error {
					<-ctx.Done()
					<-time.After(4 * time.Second)
					return nil
				})
				return nil
			}, w)
		}()
		synctest.Wait()
		m.signals <- syscall.SIGTERM
		if got := <-code; got != ExitFailed {
			t.Errorf("exit code = %d, want %d: a part did not stop", got, ExitFailed)
		}
		if took := time.Since(begin); took < 10*time.Second || took > 10*time.Second+lastMoment {
			t.Errorf("stopping took %s, want the grace of 10s and little more", took)
		}
		if left := <-left; left != 6*time.Second {
			t.Errorf("Grace() = %s for the second part, want what the first left of it, 6s", left)
		}
		close(release)
	})
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m machine
		w := m.world()
		code := make(chan int, 1)
		release := make(chan struct{})
		go func() {
			code <- execute("test", func(_ context.Context, s *Service) error {
				s.Part("stuck", func(context.Context) error { <-release; return nil })
				return nil
			}, w)
		}()
		m.signals <- syscall.SIGTERM
		synctest.Wait()
		m.signals <- syscall.SIGTERM
		synctest.Wait()
		if diff := cmp.Diff([]int{ExitFailed}, m.exits); diff != "" {
			t.Errorf("exits (-want +got):\n%s", diff)
		}
		close(release)
		<-code
	})
}

func TestPartThatFailsBeforeItsTurnToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m machine
		w := m.world()
		stopping := make(chan struct{})
		code := make(chan int, 1)
		go func() {
			code <- execute("test", func(_ context.Context, s *Service) error {
				s.Part("weak", func(context.Context) error { <-stopping; return errors.New("broke") })
				s.Part("slow", func(ctx context.Context) error {
					<-ctx.Done()
					close(stopping)
					<-time.After(time.Second)
					return nil
				})
				return nil
			}, w)
		}()
		synctest.Wait()
		m.signals <- syscall.SIGTERM
		if got := <-code; got != ExitFailed {
			t.Errorf("exit code = %d, want %d", got, ExitFailed)
		}
	})
}

func TestEndsBeforeItStarts(t *testing.T) {
	tests := []struct {
		name     string
		args     []string
		build    func(context.Context, *Service) error
		code     int
		out, err string
	}{
		{
			name: "wrong settings", code: ExitConfig,
			build: func(context.Context, *Service) error {
				return &conf.Error{Problems: []conf.Problem{{Flag: "listen", Env: "WEFT_LISTEN", Text: "bad"}}}
			},
			err: "weft-test: the settings are wrong\n  why:   -listen (WEFT_LISTEN): bad\n  next:  correct the above; -help lists every setting\n",
		},
		{
			name:  "help",
			build: func(context.Context, *Service) error { return &conf.Help{Text: "how\n"} },
			out:   "how\n",
		},
		{name: "version", args: []string{"-version"}, out: "weft-test dev\n"},
		{
			name: "failure", code: ExitFailed,
			build: func(context.Context, *Service) error { return errors.New("no") },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var m machine
			if got := execute("test", tt.build, m.world(tt.args...)); got != tt.code {
				t.Errorf("exit code = %d, want %d", got, tt.code)
			}
			if diff := cmp.Diff(tt.out, m.out.String()); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.err, m.err.String()); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSignalWhileBuilding(t *testing.T) {
	var m machine
	w := m.world()
	m.signals <- syscall.SIGINT
	got := execute("test", func(ctx context.Context, _ *Service) error {
		<-ctx.Done()
		return ctx.Err()
	}, w)
	if got != ExitStopped {
		t.Errorf("exit code = %d, want %d", got, ExitStopped)
	}
}

func TestNotReady(t *testing.T) {
	s := newService("test")
	synced := errors.New("no snapshot yet")
	s.Ready("tables", func() error { return synced })
	s.Ready("bus", func() error { return nil })
	names := func() string {
		var all []string
		for _, u := range s.NotReady() {
			all = append(all, u.Name+": "+u.Err.Error())
		}
		return strings.Join(all, ", ")
	}
	if got := names(); got != "test: starting" {
		t.Errorf("before the start: %q", got)
	}
	s.started.Store(true)
	if got := names(); got != "tables: no snapshot yet" {
		t.Errorf("before the snapshot: %q", got)
	}
	synced = nil
	if got := names(); got != "" {
		t.Errorf("when all is well: %q", got)
	}
	s.ending.begin(time.Now())
	if got := names(); got != "test: stopping" {
		t.Errorf("at the end: %q", got)
	}
}
