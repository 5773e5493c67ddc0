package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/e2e/internal/cluster"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

// server is the API server that all tests share; each has namespaces of its own.
type server struct {
	control *cluster.Control
	url     string
	ca      []byte
	client  *http.Client
	// The process, so that it can be killed and started again as it was.
	pid  int
	exe  string
	args []string
	cmd  *exec.Cmd
	log  *os.File
}

var (
	shared   *server
	starting sync.Once
	problem  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.down()
	}
	os.Exit(code)
}

// open gives the shared server, starting it first; it skips the test if it can't
// be started on this machine.
func open(t *testing.T) *server {
	t.Helper()
	options := cluster.Options{Kube: os.Getenv("WEFT_KUBE_BIN")}
	if err := cluster.MissingLight(options); err != nil {
		t.Skipf("%v", err)
	}
	starting.Do(func() { shared, problem = start(options) })
	if problem != nil {
		t.Fatal(problem)
	}
	return shared
}

func start(options cluster.Options) (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	control, err := cluster.Light(ctx, options)
	if err != nil {
		return nil, err
	}
	s := &server{control: control}
	if err := s.connect(); err != nil {
		return nil, err
	}
	return s, s.find()
}

var fields = regexp.MustCompile(`(server|certificate-authority-data|client-certificate-data|client-key-data): (\S+)`)

// connect makes the administrator's client from the kubeconfig file.
func (s *server) connect() error {
	text, err := os.ReadFile(s.control.Kubeconfig())
	if err != nil {
		return err
	}
	values := map[string][]byte{}
	for _, m := range fields.FindAllStringSubmatch(string(text), -1) {
		if m[1] == "server" {
			s.url = m[2]
			continue
		}
		if values[m[1]], err = base64.StdEncoding.DecodeString(m[2]); err != nil {
			return err
		}
	}
	pair, err := tls.X509KeyPair(values["client-certificate-data"], values["client-key-data"])
	if err != nil {
		return err
	}
	s.ca = values["certificate-authority-data"]
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.ca)
	s.client = &http.Client{Timeout: proc.Patience, Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{pair}},
		MaxIdleConnsPerHost: 16,
	}}
	return nil
}

// find looks for kube-apiserver among our own children.
func (s *server) find() error {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return err
	}
	for _, file := range entries {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) < 2 || f[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		dir := filepath.Dir(file)
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if args[0] != cluster.APIServer || !strings.Contains(string(line), "--secure-port="+s.port()) {
			continue
		}
		s.args = args
		if s.exe, err = os.Readlink(filepath.Join(dir, "exe")); err != nil {
			return err
		}
		s.pid, err = strconv.Atoi(filepath.Base(dir))
		return err
	}
	return fmt.Errorf("no child of ours is %s on port %s", cluster.APIServer, s.port())
}

func (s *server) port() string { return s.url[strings.LastIndexByte(s.url, ':')+1:] }

// kill ends the API server as the kernel does when memory runs out.
func (s *server) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(s.pid, syscall.SIGKILL); err != nil {
		t.Fatalf("killing the API server: %v", err)
	}
	if s.cmd != nil {
		_ = s.cmd.Wait()
		_ = s.log.Close()
	}
	t.Cleanup(func() { s.revive(t) }) // for the other tests, whatever becomes of this one
	s.pid = 0
}

// revive starts the API server as it was, if it was killed, and waits for it.
func (s *server) revive(t *testing.T) {
	t.Helper()
	began := time.Now()
	again := func() {
		var err error
		if s.log, err = os.CreateTemp(filepath.Dir(s.control.Kubeconfig()), "again-*.log"); err != nil {
			t.Fatal(err)
		}
		s.cmd = exec.Command(s.exe, s.args[1:]...)
		s.cmd.Args[0] = s.args[0]
		s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := s.cmd.Start(); err != nil {
			t.Fatalf("starting the API server again: %v", err)
		}
		s.pid = s.cmd.Process.Pid
	}
	if s.pid == 0 {
		again()
	}
	ready := func() error {
		if s.cmd != nil && s.ended() { // its port was not free yet, say
			_ = s.cmd.Wait()
			again()
		}
		_, err := s.do(http.MethodGet, "/readyz", "", nil)
		if err != nil && s.log != nil {
			text, _ := os.ReadFile(s.log.Name())
			err = fmt.Errorf("%w; it says %s", err, text[max(0, len(text)-2000):])
		}
		return err
	}
	// A restart under load takes half a minute.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for err := ready(); err != nil; err = ready() {
		if time.Since(began) > 4*time.Minute {
			t.Fatalf("the API server is not ready: %v", err)
		}
		<-tick.C
	}
	if d := time.Since(began); s.cmd != nil && d > time.Second {
		t.Logf("the API server was ready after %v", d.Round(time.Millisecond))
	}
}

// ended tells whether the process we started is one that nobody waited for.
func (s *server) ended() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(rest, "Z")
}

func (s *server) down() {
	if s.cmd != nil && s.pid != 0 {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
	if err := s.control.Down(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// compact makes etcd forget the past, so that older watches can't go on.
func (s *server) compact(t *testing.T) {
	t.Helper()
	var etcd string
	for _, a := range s.args {
		if value, ok := strings.CutPrefix(a, "--etcd-servers="); ok {
			etcd = value
		}
	}
	post := func(path, body string) []byte {
		resp, err := http.Post(etcd+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s, %v", path, resp.Status, answer, err)
		}
		return answer
	}
	var now struct {
		Header struct{ Revision string } `json:"header"`
	}
	if err := json.Unmarshal(post("/v3/kv/range", `{"key":"AA=="}`), &now); err != nil || now.Header.Revision == "" {
		t.Fatalf("asking for etcd's revision: %v", err)
	}
	post("/v3/kv/compaction", fmt.Sprintf(`{"revision":%q,"physical":true}`, now.Header.Revision))
}

// do asks the API server as its administrator.
func (s *server) do(method, path, kind string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, &refusal{resp.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, resp.Status, answer)}
	}
	return answer, nil
}

// refusal is an answer of the API server that is no success.
type refusal struct {
	code int
	text string
}

func (r *refusal) Error() string { return r.text }

// streams tells whether the server sends the first list as part of a watch, which
// it does not over an etcd older than 3.4.25.
func (s *server) streams(t *testing.T) bool {
	t.Helper()
	answer, err := s.do(http.MethodGet, "/api/v1/namespaces?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", "", nil)
	if err != nil {
		t.Logf("streaming a list: %v", err)
		return false
	}
	return bytes.Contains(answer, []byte(`"k8s.io/initial-events-end":"true"`))
}

// watches counts the watches that go on now, by resource.
func (s *server) watches(t *testing.T) map[string]int {
	t.Helper()
	page, err := s.do(http.MethodGet, "/metrics", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*resource="([^"]+)".*verb="WATCH".*\} (\S+)$`).FindAllStringSubmatch(string(page), -1) {
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		out[m[1]] += int(n)
	}
	return out
}
