package bus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"
)

// Settings of the connection, measured in BUS.md sections 3, 6 and 8.
const (
	reconnectWait   = 100 * time.Millisecond
	reconnectJitter = 100 * time.Millisecond
	// With TLS a handshake costs the server milliseconds; spread them.
	reconnectJitterTLS = 300 * time.Millisecond
	connectTimeout     = time.Second
	pingInterval       = 2 * time.Second
	maxPingsOut        = 2
	// The log is locked while it publishes, so a server that takes nothing may
	// hold it only so long; the default is a minute.
	flushTimeout    = 2 * time.Second
	pendingMessages = 8192
	pendingBytes    = 8 << 20
)

// natsBus is the NATS driver.
type natsBus struct {
	conn    *nats.Conn
	cluster string
	peer    string
	reg     prometheus.Registerer
	slow    prometheus.Counter
	up      prometheus.Gauge
	// closed says that the connection has ended for good.
	closed chan struct{}

	mu       sync.Mutex
	watchers map[int]func(Event)
	next     int
}

var _ Transport = (*natsBus)(nil)

// Connect makes a transport on NATS. It never waits for a server that isn't
// there: the connection is made, and made again, in the background, and Watch
// tells. The name is the service's: it is shown by the servers, and answers come
// to subjects below _INBOX.<name>. Metrics of the log go to reg. More options
// are for tests.
func Connect(ctx context.Context, cfg Config, name string, reg prometheus.Registerer, more ...nats.Option) (Transport, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("connecting to the bus: %w", err)
	}
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("connecting to the bus: %w", err)
	}
	b := &natsBus{
		cluster:  cfg.cluster(),
		peer:     nuid.Next(),
		reg:      reg,
		watchers: map[int]func(Event){},
		closed:   make(chan struct{}),
	}
	if cfg.Credentials != "" {
		// The client reads it at each connection, and would only ever retry.
		if _, err := os.Stat(cfg.Credentials); err != nil {
			return nil, fmt.Errorf("connecting to the bus: reading credentials: %w", err)
		}
	}
	b.slow, b.up = connectionMetrics(reg, b.cluster)
	opts := []nats.Option{
		nats.Name(name),
		nats.CustomInboxPrefix(inboxOf(name)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitterTLS),
		nats.Timeout(connectTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPingsOut),
		nats.FlusherTimeout(flushTimeout),
		nats.RetryOnFailedConnect(true),
		// The log's ring is the buffer. NATS' own would replay stale batches,
		// perhaps of a deposed leader.
		nats.ReconnectBufSize(-1),
		// Credentials are renewed under a running process, and servers come back
		// before their accounts do: no refusal is final.
		nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(b.connected),
		nats.ReconnectHandler(b.connected),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.disconnected(err) }),
		nats.ErrorHandler(b.failed),
	}
	if cfg.Credentials != "" {
		opts = append(opts, nats.UserCredentials(cfg.Credentials))
	}
	if cfg.CA != "" {
		opts = append(opts, nats.RootCAs(cfg.CA))
	}
	if cfg.Cert != "" {
		opts = append(opts, nats.ClientCert(cfg.Cert, cfg.Key))
	}
	opts = append(opts, oldestTLS)
	conn, err := nats.Connect(cfg.servers(), append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to the bus at %s: %w", shown(cfg.servers()), err)
	}
	b.conn = conn
	if conn.IsConnected() {
		b.up.Set(1)
	}
	return b, nil
}

// inboxOf is where a service hears its answers: apart from every other's, so
// that servers can keep them from each other.
func inboxOf(name string) string {
	if !validToken(name) {
		return nats.InboxPrefix[:len(nats.InboxPrefix)-1]
	}
	return nats.InboxPrefix + name
}

// oldestTLS keeps TLS below 1.3 off, without asking for TLS itself: whether it
// is used follows from the servers' scheme, the CA and the server's own word.
func oldestTLS(o *nats.Options) error {
	if o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{}
	}
	o.TLSConfig.MinVersion = tls.VersionTLS13
	return nil
}

func (b *natsBus) Cluster() string { return b.cluster }
func (b *natsBus) Peer() string    { return b.peer }

// Registerer is where the log on this transport puts its metrics.
func (b *natsBus) Registerer() prometheus.Registerer { return b.reg }

func (b *natsBus) Publish(subject string, header Header, data []byte) error {
	msg := &nats.Msg{Subject: subject, Data: data}
	if len(header) > 0 {
		msg.Header = make(nats.Header, len(header))
		for k, v := range header {
			msg.Header[k] = []string{v}
		}
	}
	if err := b.conn.PublishMsg(msg); err != nil {
		return fmt.Errorf("publishing to %s: %w", subject, disconnection(err))
	}
	return nil
}

func (b *natsBus) Subscribe(subject string, deliver func(Message)) (Subscription, error) {
	sub, err := b.conn.Subscribe(subject, func(msg *nats.Msg) {
		deliver(Message{Subject: msg.Subject, Header: headerOf(msg), Data: msg.Data})
	})
	return b.bounded(sub, subject, err)
}

func (b *natsBus) Serve(subject, group string, answer func(Request)) (Subscription, error) {
	sub, err := b.conn.QueueSubscribe(subject, group, func(msg *nats.Msg) {
		answer(Request{Data: msg.Data, Respond: msg.Respond})
	})
	return b.bounded(sub, subject, err)
}

func (b *natsBus) bounded(sub *nats.Subscription, subject string, err error) (Subscription, error) {
	if err != nil {
		return nil, fmt.Errorf("subscribing to %s: %w", subject, err)
	}
	if err := sub.SetPendingLimits(pendingMessages, pendingBytes); err != nil {
		return nil, fmt.Errorf("bounding the subscription to %s: %w", subject, err)
	}
	return natsSubscription{sub}, nil
}

func headerOf(msg *nats.Msg) Header {
	if len(msg.Header) == 0 {
		return nil
	}
	h := make(Header, len(msg.Header))
	for k, v := range msg.Header {
		if len(v) > 0 {
			h[k] = v[0]
		}
	}
	return h
}

type natsSubscription struct{ sub *nats.Subscription }

// Stop has nobody to tell when it fails: the connection is gone, and with it
// the subscription.
func (s natsSubscription) Stop() { _ = s.sub.Unsubscribe() }

func (b *natsBus) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	msg, err := b.conn.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", subject, disconnection(err))
	}
	return msg.Data, nil
}

func disconnection(err error) error {
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return ErrNoPeers
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting),
		errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrDisconnected):
		return ErrDisconnected
	}
	return err
}

func (b *natsBus) Connected() bool { return b.conn.IsConnected() }

func (b *natsBus) Watch(heard func(Event)) (stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := b.next
	b.next++
	b.watchers[id] = heard
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, id)
	}
}

func (b *natsBus) tell(e Event) {
	switch e {
	case Connected:
		b.up.Set(1)
	case Disconnected:
		b.up.Set(0)
	case Slow:
		b.slow.Inc()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, heard := range b.watchers {
		heard(e)
	}
}

func (b *natsBus) connected(conn *nats.Conn) {
	slog.Info("bus connected", "cluster", b.cluster, "server", conn.ConnectedUrlRedacted())
	b.tell(Connected)
}

func (b *natsBus) disconnected(err error) {
	if err != nil {
		slog.Warn("bus connection lost", "cluster", b.cluster, "error", err)
	}
	b.tell(Disconnected)
}

func (b *natsBus) failed(_ *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		b.tell(Slow)
	}
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	slog.Warn("bus reported an error", "cluster", b.cluster, "subject", subject, "error", err)
}

func (b *natsBus) Reconnect() {
	if err := b.conn.ForceReconnect(); err != nil {
		slog.Warn("reconnecting to the bus failed", "cluster", b.cluster, "error", err)
	}
}

func (b *natsBus) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-b.closed:
		if ctx.Err() != nil {
			return nil
		}
		return errors.New("running the bus: the connection was closed for good")
	}
	// What was published last, a leaving presence for one, should still go out.
	_ = b.conn.FlushTimeout(connectTimeout)
	b.Close()
	return nil
}

func (b *natsBus) Close() { b.conn.Close() }
