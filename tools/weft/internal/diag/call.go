package diag

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/weftmesh/weft/services/kit/say"
)

const (
	destinationPort = 8086
	policyPort      = 8090
	callTime        = 30 * time.Second
)

// dial makes a gRPC client of a pod's port. There is no TLS: the port-forward
// ends inside the pod, at the port that the pod's own proxy guards from outside.
func dial(d Door, ns, pod string, port int) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d.Dial(ctx, ns, pod, port) }))
	if err != nil {
		return nil, fmt.Errorf("making a client of pod %s/%s: %w", ns, pod, err)
	}
	return conn, nil
}

// explain says what an answer that is an error means.
func explain(what string, err error) error {
	s := status.Convert(err)
	p := &say.Problem{What: what + ": " + s.Code().String(), Why: s.Message(), Err: err}
	switch s.Code() {
	case codes.NotFound:
		p.Next = "see whether the name, the namespace and the port are right"
	case codes.InvalidArgument:
		p.Next = "correct what was asked; --token must be NAMESPACE:POD or JSON"
	case codes.Unavailable, codes.DeadlineExceeded:
		p.Next = "weft check; name another pod with --destination-pod"
	case codes.Unimplemented:
		p.Next = "see `weft version`: the control plane is older than this command, or another's"
	}
	return p
}

// readable writes a message as JSON or YAML.
func readable(w io.Writer, format string, m proto.Message) error {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	var out bytes.Buffer
	if format == "yaml" {
		text, err := yaml.JSONToYAML(raw)
		if err != nil {
			return fmt.Errorf("encoding the answer: %w", err)
		}
		out.Write(text)
	} else {
		// protojson's spaces differ from build to build.
		if err := json.Indent(&out, raw, "", "  "); err != nil {
			return fmt.Errorf("encoding the answer: %w", err)
		}
		out.WriteByte('\n')
	}
	return write(w, "", out.Bytes())
}
