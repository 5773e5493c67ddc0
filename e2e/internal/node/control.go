package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The acts on a component, in the control API's paths: POST /<component>/<act>.
const (
	actStart  = "start"
	actStop   = "stop"
	actKill   = "kill"
	actPause  = "pause"
	actResume = "resume"
)

func listen(ctx context.Context, socket string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening for the node's control: %w", err)
	}
	return l, nil
}

// serve answers the machine's side. The socket is in the node's directory, which
// nothing in the node sees.
func (k *keeper) serve(l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(k.states()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /{component}/{act}", func(w http.ResponseWriter, r *http.Request) {
		p, ok := k.kept[r.PathValue("component")]
		if !ok {
			http.Error(w, "no such component", http.StatusNotFound)
			return
		}
		if err := k.act(p, r.PathValue("act")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: grace}
	if err := srv.Serve(l); err != nil {
		return fmt.Errorf("serving the node's control: %w", err)
	}
	return nil
}

func (k *keeper) act(p *kept, act string) error {
	switch act {
	case actStart:
		return k.start(p)
	case actStop:
		return k.stop(p, unix.SIGTERM)
	case actKill:
		return k.stop(p, unix.SIGKILL)
	case actPause:
		return k.signal(p, unix.SIGSTOP)
	case actResume:
		return k.signal(p, unix.SIGCONT)
	}
	return fmt.Errorf("no act is called %q", act)
}

// answerLimit bounds what is read of a node's answer.
const answerLimit = 1 << 20

// ask sends a request to the node's init.
func ask(ctx context.Context, socket, method, path string) ([]byte, error) {
	client := &http.Client{
		Timeout: 2 * grace,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", socket)
		}},
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://node"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking a node: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking a node: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerLimit))
	if err != nil {
		return nil, fmt.Errorf("asking a node: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(body)))
	}
	return body, nil
}
