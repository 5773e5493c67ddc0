package serve

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/weftmesh/weft/services/policy/internal/derive"
)

// Options are what a gRPC server needs to send encoded answers as they are:
// an answer is encoded once for all streams that share it.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)})}
}

// codec is gRPC's own for protobuf, but for answers.
type codec struct{ encoding.CodecV2 }

// Marshal passes an answer's bytes on; gRPC does not change what it sends.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*derive.Answer); ok {
		return mem.BufferSlice{mem.SliceBuffer(a.Bytes())}, nil
	}
	return c.CodecV2.Marshal(v) //nolint:wrapcheck // gRPC looks at it
}
