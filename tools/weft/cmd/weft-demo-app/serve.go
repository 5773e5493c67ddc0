package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// onPurpose marks an error that the application means to give, so that the
// load generator can tell it from one that the mesh caused.
const onPurpose = "X-Demo-On-Purpose"

// lastAnswers is the time that requests have to end when the role does.
const lastAnswers = 10 * time.Second

// serveHTTP serves until ctx ends, then lets requests finish.
func serveHTTP(ctx context.Context, addr string, h http.Handler) error {
	srv := &http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }}
	done := make(chan error, 1)
	go func() { done <- srv.ListenAndServe() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
		defer cancel()
		return srv.Shutdown(grace)
	}
}

// runBooks answers every GET with one line, and with a 500 at times.
func runBooks(ctx context.Context, o options) error {
	return serveHTTP(ctx, o.Listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if rand.Float64() < o.Fail { //nolint:gosec // which request fails need not be a secret
			w.Header().Set(onPurpose, o.Name)
			http.Error(w, o.Name+" fails on purpose", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, "%s from %s\n", o.Name, o.Listen)
	}))
}

// prices is a gRPC service without generated code: messages are well-known types.
// Where there is a ledger, it books each question.
type prices struct {
	ask    *client
	ledger string
}

// Headers of an answer: whom the service saw asking, and that it had to ask the
// ledger again.
const (
	askedByHeader = "x-demo-asked-by"
	againHeader   = "x-demo-again"
)

func (p prices) get(ctx context.Context, name *wrapperspb.StringValue) (*wrapperspb.DoubleValue, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs(askedByHeader, first(md, clientID)))
	if p.ledger != "" {
		again, err := p.ask.booked(ctx, p.ledger, name.GetValue())
		if again != "" {
			_ = grpc.SetHeader(ctx, metadata.Pairs(againHeader, again))
		}
		if err != nil {
			return nil, status.Errorf(codes.Unavailable, "ledger: %v", err)
		}
	}
	return wrapperspb.Double(float64(len(name.GetValue())) * 1.25), nil
}

const pricesGet = "/weft.demo.Prices/Get"

var pricesDesc = grpc.ServiceDesc{
	ServiceName: "weft.demo.Prices",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Get",
		Handler: func(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := &wrapperspb.StringValue{}
			if err := dec(in); err != nil {
				return nil, err
			}
			return srv.(prices).get(ctx, in)
		},
	}},
}

func runPrices(ctx context.Context, o options) error {
	ask, err := newClient(o)
	if err != nil {
		return err
	}
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	srv := grpc.NewServer()
	srv.RegisterService(&pricesDesc, prices{ask, o.Targets.Ledger})
	defer context.AfterFunc(ctx, srv.GracefulStop)()
	return srv.Serve(lis)
}

// runLedger answers each line with "booked <line>", until ctx ends and with it the
// connections that are there, or until these have had their time.
func runLedger(ctx context.Context, o options) error {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = lis.Close() })()
	var open sync.WaitGroup
	for {
		conn, err := lis.Accept()
		switch {
		case err == nil:
			open.Go(func() { book(conn) })
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			ended := make(chan struct{})
			go func() {
				open.Wait()
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(lastAnswers):
			}
			return nil
		default:
			return fmt.Errorf("accepting: %w", err)
		}
	}
}

func book(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 1024), 4096)
	for {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if !lines.Scan() {
			return
		}
		if _, err := fmt.Fprintf(conn, "booked %s\n", strings.TrimSpace(lines.Text())); err != nil {
			return
		}
	}
}
