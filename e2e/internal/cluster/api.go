package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weftmesh/weft/e2e/internal/pki"
)

// api is the little that starting a cluster asks of its API server.
type api struct {
	server string
	client *http.Client
}

// oneAnswer bounds the wait for a single answer; a server that comes up may
// accept and be silent.
const oneAnswer = 5 * time.Second

func newAPI(server string, ca *pki.Authority, admin pki.Pair) (*api, error) {
	cert, err := tls.X509KeyPair(admin.Cert, admin.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	return &api{server, &http.Client{
		Timeout:   oneAnswer,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.Pool(), Certificates: []tls.Certificate{cert}}},
	}}, nil
}

// answerLimit bounds what is read of an answer.
const answerLimit = 4 << 20

func (a *api) do(ctx context.Context, method, path, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.server+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("asking the API server: %w", err)
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	req.Header.Set("Accept", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("asking the API server: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the API server's answer: %w", err)
	}
	return resp.StatusCode, answer, nil
}

// ready is nil once the server has finished its start, its RBAC rules included.
func (a *api) ready(ctx context.Context) error {
	code, answer, err := a.do(ctx, http.MethodGet, "/readyz", "")
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("the API server is not ready: %s", bytes.TrimSpace(answer))
	}
	return nil
}

// apply makes the objects of a YAML text, or makes them what it says. Each begins
// with a comment that says where it is.
func (a *api) apply(ctx context.Context, text string) error {
	for doc := range strings.SplitSeq(text, "\n---\n") {
		first, _, _ := strings.Cut(strings.TrimSpace(doc), "\n")
		path, ok := strings.CutPrefix(first, "# at ")
		if !ok {
			return fmt.Errorf("an object does not say where it is, but %q", first)
		}
		code, answer, err := a.do(ctx, http.MethodPatch, path+"?force=true&fieldManager="+Program, doc)
		if err != nil {
			return err
		}
		if code != http.StatusCreated && code != http.StatusOK {
			return fmt.Errorf("applying %s: %s", path, bytes.TrimSpace(answer))
		}
	}
	return nil
}

// get reads an object into v, which has the fields that are asked for.
func (a *api) get(ctx context.Context, path string, v any) error {
	code, answer, err := a.do(ctx, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return fmt.Errorf("%s: %s", path, http.StatusText(code))
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// exists is nil if there is such an object.
func (a *api) exists(ctx context.Context, path string) error {
	var object struct{}
	return a.get(ctx, path, &object)
}

func (a *api) nodeReady(ctx context.Context, name string) error {
	var object struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := a.get(ctx, "/api/v1/nodes/"+name, &object); err != nil {
		return err
	}
	for _, c := range object.Status.Conditions {
		if c.Type == "Ready" {
			if c.Status == "True" {
				return nil
			}
			return fmt.Errorf("node %s is not ready: %s", name, c.Message)
		}
	}
	return fmt.Errorf("node %s has not said whether it is ready", name)
}

func (a *api) deploymentReady(ctx context.Context, namespace, name string) error {
	var object struct {
		Status struct {
			AvailableReplicas int `json:"availableReplicas"`
		}
	}
	if err := a.get(ctx, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name, &object); err != nil {
		return err
	}
	if object.Status.AvailableReplicas == 0 {
		return fmt.Errorf("no pod of %s/%s is available", namespace, name)
	}
	return nil
}

// eventually asks until the answer is nil, and gives the last error when the
// time is over.
func eventually(ctx context.Context, limit time.Duration, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return fmt.Errorf("waiting for %s: %w", what, cause)
			}
			return fmt.Errorf("waiting for %s for %s: %w", what, limit, err)
		case <-tick.C:
		}
	}
}
