// Weft is the user's command: see `weft --help`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/weftmesh/weft/tools/weft/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first signal asks, the second kills
	code := cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
