// Package apiserver is a small client of the Kubernetes API server: the few
// fields of the few objects that the CNI plugin and its companions read, over
// net/http. Every call ends with its context, and every answer is bounded.
package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weftmesh/weft/services/kit/build"
)

// Client talks to one API server. It may be used by many goroutines.
type Client struct {
	base  string
	token func() (string, error)
	http  *http.Client
}

// most bounds one answer: a node's pods, with room.
const most = 64 << 20

// AccountDir is where the kubelet puts a pod's service account.
const AccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster is the client of a pod: the address comes from the environment
// (KUBERNETES_SERVICE_HOST and _PORT), the token from dir, read anew for each
// call since the kubelet rotates it.
func InCluster(getenv func(string) string, dir string) (*Client, error) {
	server, err := Server(getenv)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's CA: %w", err)
	}
	return dial(server, ca, func() (string, error) {
		b, err := os.ReadFile(filepath.Join(dir, "token"))
		return strings.TrimSpace(string(b)), err
	})
}

// Server is the API server's URL as a pod's environment names it.
func Server(getenv func(string) string) (string, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return "", errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod")
	}
	return "https://" + net.JoinHostPort(strings.Trim(host, "[]"), port), nil
}

func dial(server string, ca []byte, token func() (string, error)) (*Client, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%q is not the URL of an API server", server)
	}
	roots := x509.NewCertPool()
	if len(ca) > 0 && !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the API server's CA holds no certificate")
	}
	return &Client{
		base: strings.TrimRight(server, "/"), token: token,
		http: &http.Client{Transport: &http.Transport{
			TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
			TLSHandshakeTimeout:   5 * time.Second,
			ResponseHeaderTimeout: 10 * time.Second,
			ForceAttemptHTTP2:     true,
			HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		}},
	}, nil
}

// Status is an answer other than success.
type Status struct {
	Code    int    // HTTP's
	Reason  string // Kubernetes's word for it, such as NotFound
	Message string
}

func (s *Status) Error() string {
	return fmt.Sprintf("the API server answered %d %s: %s", s.Code, s.Reason, s.Message)
}

// Code is the HTTP code that err carries, 0 if it carries none.
func Code(err error) int {
	if s, ok := errors.AsType[*Status](err); ok {
		return s.Code
	}
	return 0
}

// Get reads the object at path, such as /api/v1/namespaces/x.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	return c.call(ctx, http.MethodGet, path, query, nil, into)
}

// Create posts an object.
func (c *Client) Create(ctx context.Context, path string, object any) error {
	return c.call(ctx, http.MethodPost, path, nil, object, nil)
}

// Delete deletes the object at path; options is a DeleteOptions.
func (c *Client) Delete(ctx context.Context, path string, options any) error {
	return c.call(ctx, http.MethodDelete, path, nil, options, nil)
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	res, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the API server's answer: %w", err)
	case len(b) > most:
		return fmt.Errorf("the API server's answer is longer than %d bytes", most)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("decoding the API server's answer: %w", err)
	}
	return nil
}

// send returns a response of success only; the caller closes its body.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding: %w", err)
		}
		content = bytes.NewReader(b)
	}
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return nil, err
	}
	token, err := c.token()
	if err != nil {
		return nil, fmt.Errorf("reading the service account's token: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "weft-cni/"+build.Version())
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the API server: %w", err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(io.LimitReader(res.Body, 4096)) // what is lost is words
	s := &Status{Code: res.StatusCode}
	var said struct{ Reason, Message string }
	if json.Unmarshal(b, &said) == nil && said.Message != "" {
		s.Reason, s.Message = said.Reason, said.Message
	} else {
		s.Reason, s.Message = http.StatusText(res.StatusCode), strings.ToValidUTF8(string(b[:min(len(b), 200)]), "?")
	}
	return nil, s
}
