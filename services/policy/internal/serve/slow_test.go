package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// pipe is a stream whose every send waits for the test to take it.
type pipe struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // it is the stream's
	sent chan *derive.Answer
}

func (p *pipe) Context() context.Context { return p.ctx }

func (p *pipe) SendMsg(m any) error {
	select {
	case p.sent <- m.(*derive.Answer):
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *pipe) take(t testing.TB) *inbound.Server {
	t.Helper()
	m := &inbound.Server{}
	if err := proto.Unmarshal((<-p.sent).Bytes(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// open runs one WatchPort on a pipe.
func open(ctx context.Context, t testing.TB, s *Server) (*pipe, <-chan error) {
	t.Helper()
	p := &pipe{ctx: ctx, sent: make(chan *derive.Answer)}
	ended := make(chan error, 1)
	go func() {
		ended <- inboundAPI{Server: s}.WatchPort(&inbound.PortSpec{Workload: "grove:plum-0", Port: 80},
			&grpc.GenericServerStream[inbound.PortSpec, inbound.Server]{ServerStream: p})
	}()
	return p, ended
}

func serving(t testing.TB) (*table.Tables, *Server) {
	t.Helper()
	tables := table.New(cluster(t))
	tables.Apply(table.Cut{Complete: true, Changes: []bus.Change{template("plum", "linkerd"), pod("plum-0", "1", "plum")}})
	return tables, New(tables, cluster(t), Config{}, prometheus.NewRegistry())
}

// TestSlowStreamGetsTheNewest merges what a slow stream has missed: of a
// hundred changes it gets the one it was being sent and the last.
func TestSlowStreamGetsTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables, s := serving(t)
		ctx, cancel := context.WithCancel(t.Context())
		p, ended := open(ctx, t, s)
		p.take(t)
		tables.Apply(table.Cut{Changes: []bus.Change{serverRow("web0", "HTTP/1")}})
		synctest.Wait() // it is being sent web0
		for i := range 100 {
			tables.Apply(table.Cut{Changes: []bus.Change{removed(serverRow(fmt.Sprint("web", i), "")), serverRow(fmt.Sprint("web", i+1), "HTTP/1")}})
		}
		for _, want := range []string{"web0", "web100"} {
			if got := p.take(t).GetLabels()["name"]; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		synctest.Wait()
		select {
		case <-p.sent:
			t.Error("there is a third message")
		default:
		}
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestBlockedStreamIsEnded gives a reader 30 s.
func TestBlockedStreamIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables, s := serving(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p, ended := open(ctx, t, s)
		p.take(t)
		began := time.Now()
		tables.Apply(table.Cut{Changes: []bus.Change{serverRow("web", "")}})
		err := <-ended
		if took := time.Since(began); status.Code(err) != codes.Unavailable || took != 30*time.Second {
			t.Errorf("ended with %v after %v", err, took)
		}
	})
}

func TestShutdownDoesNotWaitForABlockedSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := serving(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, ended := open(ctx, t, s) // nobody takes even the first message
		synctest.Wait()
		stopping, stop := context.WithCancel(t.Context())
		stop()
		if err := s.Run(stopping); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("ended with %v, want OK", err)
		}
	})
}

// TestSpansAreChildrenOfTheChange follows one change through derive and write.
func TestSpansAreChildrenOfTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := tracetest.NewSpanRecorder()
		provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
		tables, s := serving(t)
		s.tracer = provider.Tracer("test")
		ctx, cancel := context.WithCancel(t.Context())
		p, ended := open(ctx, t, s)
		p.take(t)
		_, cut := provider.Tracer("test").Start(t.Context(), "cut")
		tables.Apply(table.Cut{
			Changes: []bus.Change{serverRow("web", "")},
			Cause:   table.Cause{ObservedAt: time.Now().Add(-time.Second), Trace: cut.SpanContext()},
		})
		p.take(t)
		tables.Apply(table.Cut{Changes: []bus.Change{serverRow("web", "HTTP/1")}}) // without a trace, without a span
		p.take(t)
		synctest.Wait()
		cancel()
		<-ended
		var names []string
		for _, span := range recorder.Ended() {
			names = append(names, span.Name())
			if span.Parent().SpanID() != cut.SpanContext().SpanID() || span.SpanContext().TraceID() != cut.SpanContext().TraceID() {
				t.Errorf("span %s has parent %v", span.Name(), span.Parent())
			}
			if span.SpanKind() != trace.SpanKindInternal {
				t.Errorf("span %s is of kind %v", span.Name(), span.SpanKind())
			}
		}
		if got := strings.Join(names, ", "); got != "derive inbound, stream write" {
			t.Errorf("spans: %s", got)
		}
	})
}

// TestClientThatNeverReads is complaints A1 and A2 for both streams: another
// stream hears of changes at once, and the blocked one is given up.
func TestClientThatNeverReads(t *testing.T) {
	r := start(t, Config{SendTimeout: time.Second},
		template("plum", "linkerd"), pod("plum-0", "1", "plum"), pod("fig-0", "2", "plum"), serverRow("web", ""), service("plum", 80, "10.96.0.1"))
	deaf := r.watchPort(t, "grove:plum-0", 80)
	recv(t, deaf)
	other := r.watch(t, byAddr("10.96.0.1:80"))
	recv(t, other)
	// Each answer is half of the client's window.
	identities := func(i int) bus.Change {
		row := &busv1.MeshTLSAuthentication{Namespace: "grove", Name: "many"}
		for j := range 1000 {
			row.Identities = append(row.Identities, fmt.Sprintf("client-%d-%d.example", i, j))
		}
		return bus.Change{Table: busv1.Table_TABLE_MESH_TLS_AUTHENTICATIONS, Key: bus.Key("grove", "many"), Value: bus.Encode(row)}
	}
	r.apply(bus.Change{Table: busv1.Table_TABLE_AUTHORIZATION_POLICIES, Key: bus.Key("grove", "door"), Value: bus.Encode(&busv1.AuthorizationPolicy{
		Namespace: "grove", Name: "door", Target: &busv1.Ref{Group: "policy.linkerd.io", Kind: "Server", Name: "web"},
		Authentications: []*busv1.Ref{{Group: "policy.linkerd.io", Kind: "MeshTLSAuthentication", Name: "many"}},
	})})
	deadline := time.Now().Add(2 * time.Minute)
	protocols := []string{"http", "kubernetes.io/h2c"}
	for i := 0; value(t, r.registry, "weft_policy_streams_blocked_total", "") == 0; i++ {
		if time.Now().After(deadline) {
			t.Fatal("the stream that nobody reads is still open")
		}
		r.apply(identities(i))
		r.apply(bus.Change{Table: busv1.Table_TABLE_SERVICES, Key: bus.Key("grove", "plum"), Value: bus.Encode(&busv1.Service{
			Namespace: "grove", Name: "plum", ClusterIps: []string{"10.96.0.1"}, Ports: []*busv1.ServicePort{{Port: 80, AppProtocol: protocols[i%2]}},
		})})
		recv(t, other) // although nobody reads the first
	}
	if n := value(t, r.registry, "weft_policy_propagation_seconds", apiOutbound); n == 0 {
		t.Error("no propagation was observed")
	}
	if n := value(t, r.registry, "weft_policy_streams", apiOutbound); n != 1 {
		t.Errorf("%v outbound streams, want the other one", n)
	}
}
