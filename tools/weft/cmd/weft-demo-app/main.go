// Command weft-demo-app is the small shop that `weft demo` runs: one binary,
// one role for each workload. It knows nothing of the mesh; like any
// application with HTTP_PROXY set, it reaches other services by name through
// the proxy beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// roles is the whole application: web asks the other three, load asks web.
var roles = map[string]func(context.Context, options) error{
	"web":    runWeb,    // HTTP/1, asks books, prices, ledger and the other cluster's cards
	"books":  runBooks,  // HTTP/1, fails on purpose at times
	"prices": runPrices, // gRPC, asks ledger if it is told of one
	"ledger": runLedger, // lines over raw TCP
	"cards":  runBooks,  // HTTP/1, lives in the second cluster
	"load":   runLoad,   // asks web, counts what it gets
}

// options are what a workload's manifest gives it.
type options struct {
	Name   string
	Listen string
	// Proxy is the outbound proxy, as HTTP_PROXY gives it; empty means none.
	Proxy string
	// Fail is the share of answers that are errors on purpose, 0 to 1.
	Fail float64
	// Rate is requests a second of the load generator.
	Rate float64
	// Fresh gives each request of the load generator a connection of its own.
	Fresh bool
	// What the load generator asks web about.
	What string
	// Timeout bounds each question to another service.
	Timeout time.Duration
	Targets targets
}

// targets are the services that a role asks; an empty one is not asked.
type targets struct {
	Web, Books, Prices, Ledger, Cards string
}

func main() {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: weft-demo-app web|books|prices|ledger|cards|load [flags]")
		os.Exit(64)
	}
	role := os.Args[1]
	opts := options{Name: role}
	flags := flag.NewFlagSet(role, flag.ContinueOnError)
	flags.StringVar(&opts.Listen, "listen", "", "address to serve on")
	flags.StringVar(&opts.Proxy, "proxy", os.Getenv("HTTP_PROXY"), "outbound proxy, as a URL")
	flags.Float64Var(&opts.Fail, "fail", 0, "share of answers that are errors on purpose")
	flags.Float64Var(&opts.Rate, "rate", 20, "requests a second")
	flags.BoolVar(&opts.Fresh, "fresh", false, "a new connection for each request")
	flags.StringVar(&opts.What, "what", "apple", "what to ask web about")
	flags.DurationVar(&opts.Timeout, "timeout", 5*time.Second, "for an answer of another service")
	flags.StringVar(&opts.Targets.Web, "web", "", "host:port of web")
	flags.StringVar(&opts.Targets.Books, "books", "", "host:port of books")
	flags.StringVar(&opts.Targets.Prices, "prices", "", "host:port of prices")
	flags.StringVar(&opts.Targets.Ledger, "ledger", "", "host:port of ledger")
	flags.StringVar(&opts.Targets.Cards, "cards", "", "host:port of cards")
	if err := flags.Parse(os.Args[2:]); err != nil {
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := roles[role](ctx, opts); err != nil && !errors.Is(err, context.Canceled) {
		slog.Error("role ended", "role", role, "error", err)
		os.Exit(1)
	}
}
