package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	netapi "github.com/linkerd/linkerd2-proxy-api/go/net"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// watched are the services whose changes the demo reports.
var watched = []string{"web", "books", "prices", "ledger", "cards-far"}

// changes asks a destination replica for the demo's services, as a proxy does,
// and tells each change with the time since a manifest was last written: what
// a person waits for between saving a file and a proxy that obeys it.
func changes(ctx context.Context, l layout, replica string, tell func(string)) error {
	conn, err := grpc.NewClient(replica, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("watching changes: %w", err)
	}
	for _, name := range watched {
		go func() {
			for ctx.Err() == nil {
				follow(ctx, l, destination.NewDestinationClient(conn), name, tell)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}()
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return nil
}

// follow reads one stream to its end. What a new stream says first is not a change.
func follow(ctx context.Context, l layout, api destination.DestinationClient, name string, tell func(string)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	port := map[string]string{"prices": "9000", "ledger": "7000"}[name]
	if port == "" {
		port = "8080"
	}
	stream, err := api.Get(ctx, &destination.GetDestination{Path: name + ".shop.svc.cluster.local:" + port})
	if err != nil {
		return
	}
	opened := time.Now()
	for {
		update, err := stream.Recv()
		if err != nil {
			return
		}
		if time.Since(opened) < time.Second {
			continue
		}
		var what []string
		for _, a := range update.GetAdd().GetAddrs() {
			what = append(what, "+"+text(a.GetAddr()))
		}
		for _, a := range update.GetRemove().GetAddrs() {
			what = append(what, "-"+text(a))
		}
		line := name + " " + strings.Join(what, " ")
		if since := time.Since(lastWritten(l)); since < 10*time.Second {
			line += fmt.Sprintf(", %s after the manifest changed", since.Round(100*time.Microsecond))
		}
		tell(line)
	}
}

// lastWritten is when a watched directory or file last changed.
func lastWritten(l layout) time.Time {
	var newest time.Time
	for _, dir := range []string{l.shop(), l.mirrored()} {
		paths, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			continue
		}
		for _, path := range append(paths, dir) {
			if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
	}
	return newest
}

func text(a *netapi.TcpAddress) string {
	var four [4]byte
	binary.BigEndian.PutUint32(four[:], a.GetIp().GetIpv4())
	return netip.AddrPortFrom(netip.AddrFrom4(four), uint16(a.GetPort())).String()
}
