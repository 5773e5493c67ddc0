package run_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
)

// asService makes the test binary be the service itself instead of its tests,
// so that these tests see a real process, with its exit code and signals.
const asService = "KIT_TEST_BE_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) != "" {
		run.Main("sample", build)
	}
	os.Exit(m.Run())
}

type config struct {
	Name  string        `help:"must not be bad"`
	Stuck bool          `help:"a part never stops"`
	Grace time.Duration `help:"time to stop"`
	Fail  bool          `help:"a part fails"`
	Obs   obs.Config    `help:"logs, metrics and traces"`
}

func (c config) Check() error {
	if c.Name == "bad" {
		return conf.Bad("Name", "%q is refused", c.Name)
	}
	return nil
}

func build(ctx context.Context, s *run.Service) error {
	cfg, err := conf.Load(config{Grace: 5 * time.Second})
	if err != nil {
		return err
	}
	if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
		return err
	}
	s.SetGrace(cfg.Grace)
	s.Part("work", func(ctx context.Context) error {
		_, span := otel.Tracer("sample").Start(ctx, "work")
		span.End()
		if cfg.Fail {
			return errors.New("the work failed")
		}
		if cfg.Stuck {
			select {}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	s.Ready("name", func() error {
		if cfg.Name == "" {
			return errors.New("no name yet")
		}
		return nil
	})
	return nil
}

// child is a running service.
type child struct {
	cmd    *exec.Cmd
	lines  chan string
	stdout bytes.Buffer
	log    bytes.Buffer
}

// start runs the service with JSON logs. With an admin server expected it
// returns when that is known, otherwise at once.
func start(t *testing.T, environ []string, args ...string) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	t.Cleanup(cancel)
	c := &child{cmd: exec.CommandContext(ctx, os.Args[0], args...), lines: make(chan string, 100)}
	c.cmd.Env = append(append(os.Environ(), asService+"=1"), environ...)
	c.cmd.Stdout = &c.stdout
	r, err := c.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for sc := bufio.NewScanner(r); sc.Scan(); {
			c.lines <- sc.Text()
		}
	}()
	return c
}

// until reads the log up to the record with msg and returns it.
func (c *child) until(t *testing.T, msg string) map[string]any {
	t.Helper()
	for line := range c.lines {
		c.log.WriteString(line + "\n")
		var record map[string]any
		if json.Unmarshal([]byte(line), &record) == nil && record["msg"] == msg {
			return record
		}
	}
	t.Fatalf("the process ended without saying %q:\n%s", msg, c.log.String())
	return nil
}

// wait reads the rest of the log and returns the exit code.
func (c *child) wait(t *testing.T) int {
	t.Helper()
	for line := range c.lines {
		c.log.WriteString(line + "\n")
	}
	var exit *exec.ExitError
	if err := c.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.cmd.ProcessState.ExitCode()
}

func (c *child) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestProcessRefusesNonsense(t *testing.T) {
	c := start(t, []string{"WEFT_OBS_LOG_LEVEL=loud", "WEFT_OBS_ADMN=:1"}, "-name=bad", "-no-such-flag")
	if got := c.wait(t); got != run.ExitConfig {
		t.Errorf("exit code = %d, want %d", got, run.ExitConfig)
	}
	want := `weft-sample: the settings are wrong
  why:   4 settings are wrong
           WEFT_OBS_ADMN: no setting has this name; did you mean WEFT_OBS_ADMIN?
           -no-such-flag: no flag has this name
           -name (WEFT_NAME): "bad" is refused
           -obs.log-level (WEFT_OBS_LOG_LEVEL): "loud" is none of debug, info, warn and error
  next:  correct the above; -help lists every setting
`
	if got := c.log.String(); got != want {
		t.Errorf("stderr:\n%s\nwant:\n%s", got, want)
	}
}

func TestProcessExplainsItself(t *testing.T) {
	for arg, want := range map[string]string{"-help": "-obs.admin ADDR", "-version": "weft-sample dev"} {
		c := start(t, nil, arg)
		if got := c.wait(t); got != run.ExitStopped {
			t.Errorf("%s: exit code = %d, want 0", arg, got)
		}
		if got := c.stdout.String(); !strings.Contains(got, want) {
			t.Errorf("%s printed %q, want it to hold %q", arg, got, want)
		}
	}
}

func TestProcessLife(t *testing.T) {
	c := start(t, nil, "-obs.log-format=json")
	admin := "http://" + c.until(t, "admin listening")["addr"].(string)
	if !strings.HasPrefix(admin, "http://127.0.0.1:") {
		t.Errorf("admin listens on %s, want loopback", admin)
	}
	c.until(t, "started")
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/live":                {http.StatusOK, "live\n"},
		"/ready":               {http.StatusServiceUnavailable, "not ready\nname: no name yet\n"},
		"/metrics":             {http.StatusOK, `weft_build_info{commit="",service="sample",version="dev"} 1`},
		"/debug/pprof/cmdline": {http.StatusOK, "-obs.log-format=json"},
		"/nothing":             {http.StatusNotFound, "404"},
	} {
		if code, body := get(t, admin+path); code != want.code || !strings.Contains(body, want.body) {
			t.Errorf("%s = %d %q, want %d and %q", path, code, body, want.code, want.body)
		}
	}
	c.signal(t, syscall.SIGTERM)
	if got := c.wait(t); got != run.ExitStopped {
		t.Errorf("exit code = %d, want %d; log:\n%s", got, run.ExitStopped, c.log.String())
	}
}

func TestProcessIsReady(t *testing.T) {
	c := start(t, []string{"WEFT_OBS_LOG_FORMAT=json", "WEFT_NAME=x"})
	admin := "http://" + c.until(t, "admin listening")["addr"].(string)
	c.until(t, "started")
	if code, body := get(t, admin+"/ready"); code != http.StatusOK || body != "ready\n" {
		t.Errorf("/ready = %d %q, want 200", code, body)
	}
	c.signal(t, syscall.SIGINT)
	if got := c.wait(t); got != run.ExitStopped {
		t.Errorf("exit code = %d, want %d", got, run.ExitStopped)
	}
}

func TestProcessFails(t *testing.T) {
	c := start(t, nil, "-obs.log-format=json", "-fail")
	if got := c.until(t, "failed")["error"]; got != "work: the work failed" {
		t.Errorf("error = %q, want the part's", got)
	}
	if got := c.wait(t); got != run.ExitFailed {
		t.Errorf("exit code = %d, want %d", got, run.ExitFailed)
	}
}

func TestProcessGivesUpOnAPart(t *testing.T) {
	c := start(t, nil, "-obs.log-format=json", "-stuck", "-grace=100ms")
	c.until(t, "started")
	c.signal(t, syscall.SIGTERM)
	if got := c.until(t, "failed")["error"]; got != "stopping: still running after 100ms: work" {
		t.Errorf("error = %q, want the stuck part named", got)
	}
	if got := c.wait(t); got != run.ExitFailed {
		t.Errorf("exit code = %d, want %d", got, run.ExitFailed)
	}
}

func TestProcessSecondSignal(t *testing.T) {
	c := start(t, nil, "-obs.log-format=json", "-stuck", "-grace=1h")
	c.until(t, "started")
	c.signal(t, syscall.SIGTERM)
	c.until(t, "stopping")
	c.signal(t, syscall.SIGTERM)
	if got := c.wait(t); got != run.ExitFailed {
		t.Errorf("exit code = %d, want %d", got, run.ExitFailed)
	}
}
