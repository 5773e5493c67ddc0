package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/weftmesh/weft/services/kit/say"
)

// maxComplaint bounds what a kubelet may say about a failed forward, in bytes.
const maxComplaint = 4096

// Dial opens a connection to a port of a pod, through the API server and the
// pod's kubelet. That the port refuses is only known at the first Read, whose
// error says so. Deadlines work; Close ends everything.
func (c *Client) Dial(ctx context.Context, ns, pod string, port int) (net.Conn, error) {
	act := fmt.Sprintf("forwarding to port %d of pod %s/%s", port, ns, pod)
	if port < 1 || port > 65535 {
		return nil, fmt.Errorf("%s: there is no such port", act)
	}
	dialer, err := c.dialer(ns, pod)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", act, err)
	}
	link, err := dialWithin(ctx, dialer)
	if err != nil {
		return nil, c.explain(act, err)
	}
	conn, err := open(link, port, act)
	if err != nil {
		_ = link.Close() // it brought nothing
		return nil, c.explain(act, err)
	}
	return conn, nil
}

// dialer tries a websocket first, and SPDY where the server or a proxy on the
// way does not take that, as kubectl does.
func (c *Client) dialer(ns, pod string) (httpstream.Dialer, error) {
	cfg := rest.CopyConfig(c.cfg)
	cfg.Timeout = 0 // it would end the connection, not only the request for it
	url := c.core.Post().Resource("pods").Namespace(ns).Name(pod).SubResource("portforward").URL()
	url.RawQuery = ""
	trip, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a SPDY client: %w", err)
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: trip}, http.MethodPost, url)
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, cfg)
	if err != nil {
		return nil, fmt.Errorf("making a websocket client: %w", err)
	}
	return portforward.NewFallbackDialerForStreaming(socket, old, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// dialWithin gives up when ctx ends; client-go's dialers take no context.
func dialWithin(ctx context.Context, dialer httpstream.Dialer) (httpstream.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	type answer struct {
		link httpstream.Connection
		err  error
	}
	came := make(chan answer, 1)
	go func() {
		link, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		if err == nil && protocol != portforward.PortForwardProtocolV1Name {
			_ = link.Close() // of no use
			err = fmt.Errorf("the server speaks %q, not %q", protocol, portforward.PortForwardProtocolV1Name)
		}
		came <- answer{link, err}
	}()
	select {
	case a := <-came:
		return a.link, a.err
	case <-ctx.Done():
		go func() {
			if a := <-came; a.err == nil {
				_ = a.link.Close() // nobody waits for it any more
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// open asks for the two streams of one forwarded connection: what goes wrong
// comes on the first, data goes both ways on the second.
func open(link httpstream.Connection, port int, act string) (*conn, error) {
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	complaints, err := link.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening the stream for errors: %w", err)
	}
	_ = complaints.Close() // we only read from it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := link.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("opening the stream for data: %w", err)
	}
	near, far := net.Pipe()
	c := &conn{Conn: near, link: link}
	said := make(chan struct{})
	go func() {
		defer close(said)
		if text, _ := io.ReadAll(io.LimitReader(complaints, maxComplaint)); len(text) > 0 {
			c.refused.Store(&say.Problem{
				What: act + ": the pod's node could not connect", Why: strings.TrimSpace(string(text)),
				Next: "see whether the pod runs and listens on that port",
			})
			_ = data.Reset() // or the reader below waits for ever
		}
	}()
	go func() {
		_, _ = io.Copy(data, far)
		_ = data.Close() // the peer sees that no more comes
	}()
	go func() {
		_, _ = io.Copy(far, data)
		select {
		case <-said:
		case <-link.CloseChan():
		}
		_ = far.Close()
		_ = link.Close()
	}()
	return c, nil
}

// conn is one forwarded connection. The pipe gives it deadlines.
type conn struct {
	net.Conn
	link    httpstream.Connection
	refused atomic.Pointer[say.Problem]
}

// Read tells why the other end is gone, where the node said so.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe)) {
		if refused := c.refused.Load(); refused != nil {
			return n, refused
		}
	}
	return n, err
}

// Close ends both directions.
func (c *conn) Close() error {
	_ = c.Conn.Close()
	if err := c.link.Close(); err != nil {
		return fmt.Errorf("closing a forwarded connection: %w", err)
	}
	return nil
}
