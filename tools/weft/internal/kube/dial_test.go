package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/weftmesh/weft/services/kit/say"
)

// kubelet plays the far end of a port-forward: port 7 echoes, any other refuses.
type kubelet struct{ complaints, data httpstream.Stream }

func (k *kubelet) stream(s httpstream.Stream, replied <-chan struct{}) error {
	switch s.Headers().Get(corev1.StreamType) {
	case corev1.StreamTypeError:
		k.complaints = s
		return nil
	case corev1.StreamTypeData:
		k.data = s
	default:
		return errors.New("a stream of no known type")
	}
	go func() {
		<-replied
		if s.Headers().Get(corev1.PortHeader) == "7" {
			_, _ = io.Copy(k.data, k.data)
		} else {
			_, _ = io.WriteString(k.complaints, "connection refused inside the pod\n")
		}
		_ = k.complaints.Close()
		_ = k.data.Close()
	}()
	return nil
}

// overSPDY is an API server of old: it refuses websockets.
func overSPDY(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "SPDY/3.1") {
		http.Error(w, "no websockets here", http.StatusBadRequest)
		return
	}
	w.Header().Set(httpstream.HeaderProtocolVersion, portforward.PortForwardProtocolV1Name)
	link := spdy.NewResponseUpgrader().UpgradeResponse(w, r, new(kubelet).stream)
	if link != nil {
		<-link.CloseChan()
	}
}

// overWebsocket is an API server of today: SPDY inside a websocket.
func overWebsocket(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{Subprotocols: []string{"SPDY/3.1+" + portforward.PortForwardProtocolV1Name}}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	link, err := spdy.NewServerConnection(portforward.NewTunnelingConnection("server", ws), new(kubelet).stream)
	if err == nil {
		<-link.CloseChan()
	}
}

func TestDial(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{"spdy": overSPDY, "websocket": overWebsocket} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/namespaces/ns/pods/p/portforward" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				serve(w, r)
			})
			conn, err := c.Dial(t.Context(), "ns", "p", 7)
			if err != nil {
				t.Fatal(err)
			}
			big := strings.Repeat("weft", 1<<16)
			go func() { _, _ = io.WriteString(conn, big) }()
			got := make([]byte, len(big))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != big {
				t.Errorf("echo: %v, %d bytes", err, len(got))
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				t.Error(err)
			}
			if _, err := conn.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Read() past its deadline = %v", err)
			}
			_ = conn.Close()
			if _, err := conn.Read(got); err == nil {
				t.Error("Read() of a closed connection is no error")
			}

			refused, err := c.Dial(t.Context(), "ns", "p", 9)
			if err != nil {
				t.Fatal(err)
			}
			defer refused.Close()
			_, err = refused.Read(got)
			if problem, ok := errors.AsType[*say.Problem](err); !ok || problem.Why != "connection refused inside the pod" {
				t.Errorf("Read() of a refused port = %v", err)
			}
		})
	}
}

func TestDialOfNoPod(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 404, status(404, "NotFound", `pods "p" not found`))
	})
	_, err := c.Dial(t.Context(), "ns", "p", 7)
	if err == nil || !strings.Contains(err.Error(), `pods "p" not found`) {
		t.Errorf("Dial() = %v", err)
	}
	if _, err := c.Dial(t.Context(), "ns", "p", 70000); err == nil {
		t.Error("Dial() took port 70000")
	}
}

// TestDialGivesUp: a server that never answers does not hold the command.
func TestDialGivesUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c, err := (&Flags{Kubeconfig: kubeconfig(t, "http://"+silent.Addr().String())}).Connect()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Dial(ctx, "ns", "p", 7); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("Dial() = %v", err)
	}
}
