// Package busd is `weft bus`: a NATS server in one process, without storage but for
// the log's history where that is asked for.
// The demo and the process tests use it; a cluster runs NATS' own image.
package busd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/services/kit/say"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// Command returns `weft bus`.
func Command() *cobra.Command {
	listen, kept := "127.0.0.1:4222", ""
	cmd := &cobra.Command{
		Use:   "bus",
		Short: "Run a NATS server for a mesh on this machine",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return Serve(cmd.Context(), listen, kept) },
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "address to serve on")
	cmd.Flags().StringVar(&kept, "history", "", "directory for the log's history (JetStream), which watchers with -history.enabled then keep; empty means none")
	return cmd
}

// historyStore is the most that JetStream may promise to streams; what one takes is
// bounded by its own settings.
const historyStore = 64 << 30

// Serve runs the server until ctx ends. It keeps nothing on disk, since the API
// server is the truth and the bus a cache (DESIGN section 3), but the history of
// the log in a directory if one is given.
func Serve(ctx context.Context, listen, history string) error {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return &say.Problem{Code: usage.Exit, Err: err, What: "the bus can't listen on " + listen, Why: err.Error(), Next: "give --listen host:port"}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return &say.Problem{Code: usage.Exit, Err: err, What: "the bus can't listen on " + listen, Why: "the port is not a number from 1 to 65535", Next: "give --listen host:port"}
	}
	// The server itself only logs that a port is busy; this one explains it.
	probe, err := run.Listen(listen)
	if err != nil {
		return err
	}
	if err := probe.Close(); err != nil {
		return fmt.Errorf("trying the address: %w", err)
	}
	opts := &server.Options{
		ServerName: "weft-bus-" + port, Host: host, Port: int(number), NoSigs: true, NoLog: true,
		MaxPayload: 1 << 20, PingInterval: 2 * time.Second, MaxPingsOut: 2, WriteDeadline: 5 * time.Second,
	}
	if history != "" {
		if err := os.MkdirAll(history, 0o700); err != nil {
			return fmt.Errorf("making the directory of the history: %w", err)
		}
		opts.JetStream, opts.StoreDir, opts.JetStreamDomain = true, history, bus.HistoryDomain
		opts.JetStreamMaxStore, opts.JetStreamMaxMemory = historyStore, 1<<20
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("making the bus: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		return errors.New("starting the bus: it does not take connections after 10s")
	}
	<-ctx.Done()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}
