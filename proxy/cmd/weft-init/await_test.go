package main

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/await"
)

// fakeProxy is an admin server that is ready from the nth question on.
type fakeProxy struct {
	port             string
	asked, shutdowns atomic.Int32
}

func newProxy(t *testing.T, readyFrom int32) *fakeProxy {
	t.Helper()
	p := &fakeProxy{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /ready":
			if p.asked.Add(1) < readyFrom {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		case "POST /shutdown":
			p.shutdowns.Add(1)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(srv.Close)
	_, p.port, _ = net.SplitHostPort(srv.Listener.Addr().String())
	return p
}

func code(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func TestAwait(t *testing.T) {
	const never = 1 << 30
	for _, tt := range []struct {
		name      string
		readyFrom int32
		args      string
		env       string
		code      int
		out, errs string // are contained
		shutdowns int32
	}{
		{name: "it waits, then is done", readyFrom: 3, args: "--timeout=2m"},
		{name: "then it becomes the command", readyFrom: 2, args: "-t 2m -- /bin/sh -c 'echo'", out: ""},
		{name: "whose exit code is its own", readyFrom: 1, args: "sh -c exit\t7", code: 7},
		{name: "a proxy that never is ready", readyFrom: never, args: "--timeout 50ms", code: await.ExitTimeout, errs: "did not become ready in time"},
		{name: "not fatal", readyFrom: never, args: "--timeout 50ms --timeout-fatal=false sh -c exit\t7", code: 7, errs: "did not become ready"},
		{name: "no such command", readyFrom: 1, args: "no-such-command", code: exitSystem, errs: "cannot be run"},
		{name: "skipped", readyFrom: never, args: "-v sh -c exit\t7", env: "LINKERD_AWAIT_DISABLED=testing", code: 7, errs: "testing"},
		{name: "skipped by the older name", readyFrom: never, env: "LINKERD_DISABLED=x"},
		{name: "it stops the proxy afterwards", readyFrom: 1, args: "--shutdown sh -c exit\t7", code: 7, shutdowns: 1},
		{name: "also if the command cannot be run", readyFrom: 1, args: "-S no-such-command", code: exitSystem, errs: "cannot be run", shutdowns: 1},
		{name: "also if a signal ended it", readyFrom: 1, args: "-S -- sh -c kill\t-9\t$$", code: exitSystem, shutdowns: 1},
		{name: "shutdown without a command", readyFrom: 1, args: "--shutdown", code: 64, errs: "no command"},
		{name: "no port", readyFrom: 1, args: "--port 0", code: 64, errs: "port is 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxy(t, tt.readyFrom)
			argv := []string{"linkerd-await", "--backoff=5ms", "--port=" + p.port}
			for word := range strings.FieldsSeq(strings.ReplaceAll(tt.args, "\t", "\x00")) {
				argv = append(argv, strings.ReplaceAll(strings.Trim(word, "'"), "\x00", " "))
			}
			cmd := program(t, argv...)
			if tt.env != "" {
				cmd.Env = append(cmd.Env, tt.env)
			}
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if got := code(cmd.Run()); got != tt.code {
				t.Errorf("exit %d, want %d: %s", got, tt.code, errs.String())
			}
			if !strings.Contains(errs.String(), tt.errs) || tt.errs == "" && errs.Len() > 0 {
				t.Errorf("it says %q, want %q", errs.String(), tt.errs)
			}
			if got := p.shutdowns.Load(); got != tt.shutdowns {
				t.Errorf("%d calls of /shutdown, want %d", got, tt.shutdowns)
			}
			if tt.code == 0 && tt.env == "" && p.asked.Load() < tt.readyFrom {
				t.Errorf("it asked %d times, and the proxy was ready from the %dth on", p.asked.Load(), tt.readyFrom)
			}
		})
	}
}

// The kubelet's SIGTERM goes to the command, and the proxy ends after it.
func TestAwaitForwardsTheSignal(t *testing.T) {
	p := newProxy(t, 1)
	cmd := program(t, "linkerd-await", "--port="+p.port, "--shutdown", "--", "sh", "-c", `trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 3)); err != nil { // the command runs
		t.Fatal(err)
	}
	if p.shutdowns.Load() != 0 {
		t.Error("the proxy was stopped while the command ran")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := code(cmd.Wait()); got != 9 || p.shutdowns.Load() != 1 {
		t.Errorf("exit %d and %d calls of /shutdown, want 9 and 1", got, p.shutdowns.Load())
	}
}
