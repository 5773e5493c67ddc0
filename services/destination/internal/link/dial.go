package link

import (
	"context"
	"iter"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/bus"
)

// Dial opens logs over NATS. Name is this service's.
func Dial(name string, reg prometheus.Registerer) Open {
	return func(ctx context.Context, cfg bus.Config) (Session, error) {
		t, err := bus.Connect(ctx, cfg, name, reg)
		if err != nil {
			return nil, err
		}
		return Join(t, reg), nil
	}
}

// Join reads over a transport that there is already.
func Join(t bus.Transport, reg prometheus.Registerer) Session {
	return &session{t, bus.NewReader(t, bus.ReaderConfig{Registry: reg, Tables: Tables()})}
}

type session struct {
	transport bus.Transport
	log       *bus.Reader
}

// Run implements Session.
func (s *session) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- s.transport.Run(ctx) }()
	go func() { ended <- s.log.Run(ctx) }()
	err := <-ended
	stop()
	<-ended
	return err
}

// Read implements Session.
func (s *session) Read(ctx context.Context) iter.Seq2[bus.Cut, error] { return s.log.Read(ctx) }

// Connected implements Session.
func (s *session) Connected() bool { return s.transport.Connected() }

// Status implements Session.
func (s *session) Status() bus.Status { return s.log.Status() }
