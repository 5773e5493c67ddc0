// Package apitest is an API server for tests of the CNI plugin and its
// companions: it knows pods, namespaces and one service, and notes what was
// deleted and which events were posted. Its fields are set before it is asked.
package apitest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
)

// Token is the only one that is accepted, until SetToken.
const Token = "a-token-for-tests"

// Server is the fake.
type Server struct {
	URL string
	CA  []byte

	t  testing.TB
	mu sync.Mutex
	// objects by path, as JSON.
	objects map[string]string
	token   string
	fail    func(r *http.Request) int
	asked   map[string]int
	deletes []string
	events  []map[string]any
	watches chan string
	changed chan struct{}
}

// New starts one.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, objects: map[string]string{}, token: Token, asked: map[string]int{}, watches: make(chan string, 64), changed: make(chan struct{}, 1024)}
	srv := httptest.NewTLSServer(s)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections) // watches hang otherwise
	s.URL = srv.URL
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	return s
}

// Put stores an object, as JSON.
func (s *Server) Put(path, object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = object
}

// SetToken makes another token the accepted one.
func (s *Server) SetToken(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Fail lets f answer requests with a code; 0 answers as usual.
func (s *Server) Fail(f func(r *http.Request) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Say sends a line to the watch that is open, or to the next one; "end" ends it.
func (s *Server) Say(line string) { s.watches <- line }

// Asked is how often a path was asked for.
func (s *Server) Asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// Deleted are the paths of deleted objects with the preconditions' uid, and
// Events the notes of posted events.
func (s *Server) Deleted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.deletes...)
}

// Events are what was posted.
func (s *Server) Events() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]map[string]any(nil), s.events...)
}

// Changed gets a value after each deletion and each event.
func (s *Server) Changed() <-chan struct{} { return s.changed }

// Kubeconfig writes one for this server and returns its path.
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, apiserver.Kubeconfig(s.URL, s.CA, Token), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// Account writes a service account's directory and returns it, with a getenv
// that names this server as a pod's environment does.
func (s *Server) Account() (dir string, getenv func(string) string) {
	s.t.Helper()
	dir = s.t.TempDir()
	for name, content := range map[string][]byte{"token": []byte(Token + "\n"), "ca.crt": s.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "https://"), ":")
	return dir, func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}[name]
	}
}

// ServeHTTP answers as an API server does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	token, fail := s.token, s.fail
	object, ok := s.objects[r.URL.Path]
	s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+token {
		status(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	if fail != nil {
		if code := fail(r); code != 0 {
			status(w, code, http.StatusText(code))
			return
		}
	}
	switch {
	case r.Method == http.MethodPost:
		var event map[string]any
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			status(w, http.StatusBadRequest, err.Error())
			return
		}
		if meta, ok := event["metadata"].(map[string]any); !ok || !named(meta) {
			status(w, http.StatusUnprocessableEntity, "Invalid")
			return
		}
		s.note(func() { s.events = append(s.events, event) })
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodDelete:
		var options struct {
			Preconditions struct {
				UID string `json:"uid"`
			} `json:"preconditions"`
		}
		_ = json.NewDecoder(r.Body).Decode(&options) // empty then
		s.note(func() { s.deletes = append(s.deletes, r.URL.Path+" "+options.Preconditions.UID) })
		fmt.Fprint(w, "{}")
	case r.URL.Query().Get("watch") == "true":
		s.watch(w, r)
	case ok:
		fmt.Fprint(w, object)
	default:
		status(w, http.StatusNotFound, "NotFound")
	}
}

var subdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// named reports whether a real server would take the object's name: like that
// one, it lets only a hyphen stand at the end of a generateName.
func named(meta map[string]any) bool {
	name, _ := meta["name"].(string)
	if generate, ok := meta["generateName"].(string); ok && name == "" {
		if name = generate; strings.HasSuffix(name, "-") {
			name = name[:len(name)-1] + "a"
		}
	}
	const longest = 253
	return len(name) <= longest && subdomain.MatchString(name)
}

func (s *Server) note(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.changed <- struct{}{}
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	flusher := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case line := <-s.watches:
			if line == "end" {
				return
			}
			fmt.Fprintln(w, line)
			flusher.Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func status(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":%q,"message":"for a test","code":%d}`, reason, code)
}
