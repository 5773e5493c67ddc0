package bus

import (
	"context"
	"time"
)

func nowhen() time.Time { return time.Unix(1_000_000, 0) }

// noTransport is a connection to nowhere.
type noTransport struct{}

func (noTransport) Cluster() string                      { return "local" }
func (noTransport) Peer() string                         { return "me" }
func (noTransport) Publish(string, Header, []byte) error { return ErrDisconnected }
func (noTransport) Subscribe(string, func(Message)) (Subscription, error) {
	return nil, ErrDisconnected
}

func (noTransport) Serve(string, string, func(Request)) (Subscription, error) {
	return nil, ErrDisconnected
}

func (noTransport) Request(context.Context, string, []byte) ([]byte, error) {
	return nil, ErrDisconnected
}
func (noTransport) Connected() bool           { return false }
func (noTransport) Watch(func(Event)) func()  { return func() {} }
func (noTransport) Reconnect()                {}
func (noTransport) Run(context.Context) error { return nil }
func (noTransport) Close()                    {}
