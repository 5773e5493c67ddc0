package rpc_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/kit/rpc"
	"github.com/weftmesh/weft/services/kit/run"
)

func Example() {
	build := func(ctx context.Context, s *run.Service) error {
		lis, err := run.Listen("127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := rpc.NewServer(s.Metrics(), rpc.Draining(ctx))
		s.Part("api", func(ctx context.Context) error { return rpc.Serve(ctx, srv, lis) })
		return nil
	}
	fmt.Printf("%T\n", build)
	fmt.Println(len(rpc.NewServer(prometheus.NewRegistry()).GetServiceInfo()))
	// Output:
	// func(context.Context, *run.Service) error
	// 0
}
