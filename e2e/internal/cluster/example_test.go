package cluster_test

import (
	"context"
	"fmt"

	"github.com/weftmesh/weft/e2e/internal/cluster"
)

// A cluster for a test, of which the API server is taken away.
func ExampleUp() {
	ctx := context.Background()
	o := cluster.Options{Dir: "/tmp/weft-e2e", Nodes: 2}
	if err := cluster.Missing(o); err != nil {
		fmt.Println("skipped:", err)
		return
	}
	c, err := cluster.Up(ctx, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Down(ctx) //nolint:errcheck // an example
	if err := c.Load(ctx, ".bin/images/proxy.tar"); err != nil {
		fmt.Println(err)
		return
	}
	n1 := c.Node("n1")
	if err := n1.Kill(ctx, cluster.APIServer); err != nil { // refuses connections; Pause would let them hang
		fmt.Println(err)
		return
	}
	// … what has to go on without it …
	if err := n1.Start(ctx, cluster.APIServer); err != nil {
		fmt.Println(err)
	}
}

// An API server alone, for tests of watches and admission.
func ExampleLight() {
	c, err := cluster.Light(context.Background(), cluster.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Down() //nolint:errcheck // an example
	fmt.Println("KUBECONFIG is", c.Kubeconfig())
}
