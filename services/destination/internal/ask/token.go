package ask

import (
	"encoding/json"
	"errors"
	"strings"
)

// ErrToken means that a context token could not be read; the client is then
// answered as if it had sent none.
var ErrToken = errors.New("unreadable context token")

// maxToken bounds the work done for one token; real ones are under 600 bytes
// (three names of at most 253 bytes).
const maxToken = 4096

// Client is who asks, as its proxy's injector wrote it down.
type Client struct {
	Namespace string `json:"ns"`
	Node      string `json:"nodeName"`
	Pod       string `json:"pod"`
}

// Token reads a context token: JSON, or the form of proxies older than 2.9,
// "ns:<namespace>". An empty token is a client that says nothing of itself.
func Token(token string) (Client, error) {
	if token == "" {
		return Client{}, nil
	}
	if len(token) > maxToken {
		return Client{}, ErrToken
	}
	var c Client
	if err := json.Unmarshal([]byte(token), &c); err == nil {
		return c, nil
	}
	if kind, ns, ok := strings.Cut(token, ":"); ok && kind == "ns" && !strings.Contains(ns, ":") {
		return Client{Namespace: ns}, nil
	}
	return Client{}, ErrToken
}
