// Package rpctest is for tests that call a gRPC server's methods without a connection.
package rpctest

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Stream is a server's stream whose client is a function.
type Stream struct {
	Ctx context.Context //nolint:containedctx // as every grpc.ServerStream
	// Deliver gets each message, in order and one at a time, until Ctx ends.
	Deliver func(m any) error
}

// Context implements grpc.ServerStream.
func (s *Stream) Context() context.Context { return s.Ctx }

// SendMsg implements grpc.ServerStream.
func (s *Stream) SendMsg(m any) error {
	if err := s.Ctx.Err(); err != nil {
		return err
	}
	return s.Deliver(m)
}

// RecvMsg implements grpc.ServerStream: the client says nothing more.
func (s *Stream) RecvMsg(any) error { <-s.Ctx.Done(); return s.Ctx.Err() }

// SetHeader implements grpc.ServerStream.
func (s *Stream) SetHeader(metadata.MD) error { return nil }

// SendHeader implements grpc.ServerStream.
func (s *Stream) SendHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream.
func (s *Stream) SetTrailer(metadata.MD) {}
