package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// TestMetricsAreThoseOfTheMiddleware: dashboards and alerts are written for the
// names, labels and texts of its provider for Prometheus.
func TestMetricsAreThoseOfTheMiddleware(t *testing.T) {
	all := func(c prometheus.Collector) map[string]bool {
		ch, descs := make(chan *prometheus.Desc, 10), map[string]bool{}
		c.Describe(ch)
		close(ch)
		for d := range ch {
			descs[d.String()] = true
		}
		return descs
	}
	if diff := cmp.Diff(all(grpcprom.NewServerMetrics()), all(newCalls(false))); diff != "" {
		t.Errorf("(-middleware +ours):\n%s", diff)
	}
}

// taking is a call's stream that has one message to read and takes all.
type taking struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // as every grpc.ServerStream
}

func (s taking) Context() context.Context { return s.ctx }
func (taking) SendMsg(any) error          { return nil }
func (taking) RecvMsg(any) error          { return nil }

// TestCallsAreReportedAsByTheMiddleware runs the same calls through its reporters
// and through ours: counts and records are the same.
func TestCallsAreReportedAsByTheMiddleware(t *testing.T) {
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 99}})
	info := &grpc.StreamServerInfo{FullMethod: "/a.B/C", IsServerStream: true}
	unary := &grpc.UnaryServerInfo{FullMethod: "/a.B/D"}
	for _, end := range []error{nil, status.Error(codes.NotFound, "no such thing"), status.Error(codes.Internal, "broken"), errors.New("unknown")} {
		t.Run(fmt.Sprint(end), func(t *testing.T) {
			report := func(stream grpc.StreamServerInterceptor, one grpc.UnaryServerInterceptor) {
				_ = stream(nil, taking{ctx: ctx}, info, func(_ any, s grpc.ServerStream) error {
					_, _, _ = s.RecvMsg(nil), s.SendMsg(nil), s.SendMsg(nil)
					return end
				})
				_, _ = one(ctx, nil, unary, func(context.Context, any) (any, error) { return nil, end })
			}
			theirs, ours := grpcprom.NewServerMetrics(), newCalls(false)
			want := logged(t, func() {
				opts := []logging.Option{
					logging.WithLogOnEvents(logging.FinishCall), logging.WithLevels(levelOf),
					logging.WithDisableLoggingFields(logging.SystemTag[0], logging.ComponentFieldKey, logging.MethodTypeFieldKey),
				}
				log := logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
					slog.Default().Log(ctx, slog.Level(level), msg, fields...) //nolint:sloglint // the middleware's fields are pairs
				})
				report(logging.StreamServerInterceptor(log, opts...), logging.UnaryServerInterceptor(log, opts...))
			})
			got := logged(t, func() { report(interceptors.StreamServerInterceptor(ours), interceptors.UnaryServerInterceptor(ours)) })
			report(theirs.StreamServerInterceptor(), theirs.UnaryServerInterceptor())
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("records (-middleware +ours):\n%s", diff)
			}
			if diff := cmp.Diff(values(t, theirs), values(t, ours)); diff != "" {
				t.Errorf("counts (-middleware +ours):\n%s", diff)
			}
		})
	}
}

var times = regexp.MustCompile(`(?m)(^time=|grpc.start_time=|grpc.time_ms=)\S+`)

// logged is what f logs, without times.
func logged(t *testing.T, f func()) string {
	t.Helper()
	var b bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(before)
	f()
	return times.ReplaceAllString(b.String(), "$1")
}

// values are those of all series that have counted something.
func values(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); n > 0 {
				all[fmt.Sprint(f.GetName(), m.GetLabel())] = n
			}
		}
	}
	return all
}

// TestNothingIsMadeForALogThatNobodyReads: what a call keeps until its end is
// this, and no field of the record.
func TestNothingIsMadeForALogThatNobodyReads(t *testing.T) {
	c, meta := newCalls(true), interceptors.CallMeta{Typ: interceptors.ServerStream, Service: "a.B", Method: "C"}
	if n := testing.AllocsPerRun(100, func() {
		r, _ := c.ServerReporter(t.Context(), meta)
		r.PostMsgReceive(nil, nil, time.Second)
		r.PostMsgSend(nil, nil, time.Second)
	}); n > 1 {
		t.Errorf("a call makes %v things, want only its reporter", n)
	}
}
