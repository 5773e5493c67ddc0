package diag

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	netapi "github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/tools/weft/internal/diag/scrape"
	"github.com/weftmesh/weft/tools/weft/internal/plain"
	"github.com/weftmesh/weft/tools/weft/internal/usage"
)

// collect is how long additions are taken from each stream.
const collect = 5 * time.Second

// endpoint is one address that a proxy would be told.
type endpoint struct {
	Namespace string            `json:"namespace"`
	IP        string            `json:"ip"`
	Port      uint32            `json:"port"`
	Pod       string            `json:"pod"`
	Service   string            `json:"service"`
	Weight    uint32            `json:"weight"`
	HTTP2     *http2            `json:"http2,omitempty"`
	Labels    map[string]string `json:"labels"`
}

// http2 are the settings that a client's connection should have.
type http2 struct {
	KeepAlive *keepAlive `json:"keepAlive,omitempty"`
}

type keepAlive struct {
	Interval  string `json:"interval,omitempty"`
	Timeout   string `json:"timeout,omitempty"`
	WhileIdle bool   `json:"whileIdle"`
}

func endpoints(open connect) *cobra.Command {
	var pod, token string
	format := "table"
	cmd := &cobra.Command{
		Use:     "endpoints AUTHORITY...",
		Aliases: []string{"ep"},
		Short:   "Print the endpoints that a proxy is told for authorities",
		Example: "  weft diagnostics endpoints web.shop.svc.cluster.local:80",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage.Error(cmd, "AUTHORITY is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "table" && format != "json" {
				return usage.Error(cmd, fmt.Sprintf("--output %q is neither table nor json", format))
			}
			door, mesh, err := open(cmd)
			if err != nil {
				return err
			}
			server, err := serving(cmd.Context(), door, mesh, pod, destinationPort, "the destination API")
			if err != nil {
				return err
			}
			conn, err := dial(door, mesh, server, destinationPort)
			if err != nil {
				return err
			}
			defer conn.Close()
			all, err := askEndpoints(cmd.Context(), conn, args, token)
			if err != nil {
				return err
			}
			return writeEndpoints(cmd.OutOrStdout(), format, all)
		},
	}
	bindAsker(cmd, &pod, &token)
	cmd.Flags().StringVarP(&format, "output", "o", format, "how to write the answer: table or json")
	return cmd
}

// askEndpoints asks for all authorities at once; the first error is the answer.
func askEndpoints(ctx context.Context, conn *grpc.ClientConn, authorities []string, token string) ([]endpoint, error) {
	type found struct {
		all []endpoint
		err error
	}
	answers := scrape.Each(ctx, authorities, func(ctx context.Context, authority string) found {
		all, err := askOne(ctx, conn, authority, token)
		if err != nil {
			err = explain("asking for the endpoints of "+authority, err)
		}
		return found{all, err}
	})
	var all []endpoint
	for _, a := range answers {
		if a.err != nil {
			return nil, a.err
		}
		all = append(all, a.all...)
	}
	slices.SortFunc(all, func(a, b endpoint) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service), strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.IP, b.IP), cmp.Compare(a.Port, b.Port))
	})
	return all, nil
}

// askOne takes what comes within the time. A Service that has no endpoints is
// silence, so nothing at all is an answer if there is somebody who could give one.
func askOne(ctx context.Context, conn *grpc.ClientConn, authority, token string) ([]endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, collect)
	defer cancel()
	stream, err := destination.NewDestinationClient(conn).Get(ctx, &destination.GetDestination{Scheme: "http:", Path: authority, ContextToken: token})
	if err != nil {
		return nil, err
	}
	var all []endpoint
	for told := false; ; {
		update, err := stream.Recv()
		over := status.Code(err) == codes.DeadlineExceeded && (told || conn.GetState() == connectivity.Ready)
		switch {
		case over || told && errors.Is(err, io.EOF):
			return all, nil // the time is over, as it should be
		case err != nil:
			return nil, err
		}
		told = true
		for _, a := range update.GetAdd().GetAddrs() {
			all = append(all, endpointOf(a, update.GetAdd().GetMetricLabels()))
		}
	}
}

func endpointOf(a *destination.WeightedAddr, set map[string]string) endpoint {
	labels := a.GetMetricLabels()
	e := endpoint{
		Namespace: cmp.Or(labels["namespace"], set["namespace"]), IP: ip(a.GetAddr().GetIp()), Port: a.GetAddr().GetPort(),
		Pod: labels["pod"], Service: set["service"] + "." + set["namespace"], Weight: a.GetWeight(), Labels: labels,
	}
	if k := a.GetHttp2().GetKeepAlive(); k != nil {
		e.HTTP2 = &http2{KeepAlive: &keepAlive{
			Interval: k.GetInterval().AsDuration().String(), Timeout: k.GetTimeout().AsDuration().String(), WhileIdle: k.GetWhileIdle(),
		}}
	} else if a.GetHttp2() != nil {
		e.HTTP2 = &http2{}
	}
	return e
}

func ip(a *netapi.IPAddress) string {
	switch v := a.GetIp().(type) {
	case *netapi.IPAddress_Ipv4:
		n := v.Ipv4
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
	case *netapi.IPAddress_Ipv6:
		var b [16]byte
		for i := range 8 {
			b[i] = byte(v.Ipv6.GetFirst() >> (56 - 8*i))
			b[8+i] = byte(v.Ipv6.GetLast() >> (56 - 8*i))
		}
		return netip.AddrFrom16(b).String()
	}
	return ""
}

func writeEndpoints(w io.Writer, format string, all []endpoint) error {
	if format == "json" {
		if all == nil {
			all = []endpoint{}
		}
		text, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the answer: %w", err)
		}
		return write(w, "", append(text, '\n'))
	}
	if len(all) == 0 {
		return write(w, "No endpoints found.\n", nil)
	}
	byNamespace := make(map[string][]endpoint)
	for _, e := range all {
		byNamespace[e.Namespace] = append(byNamespace[e.Namespace], e)
	}
	var out bytes.Buffer
	for i, ns := range slices.Sorted(maps.Keys(byNamespace)) {
		if i > 0 {
			out.WriteByte('\n')
		}
		table := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "NAMESPACE\tIP\tPORT\tPOD\tSERVICE")
		for _, e := range byNamespace[ns] {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", plain.Line(e.Namespace), e.IP, e.Port, plain.Line(e.Pod), plain.Line(e.Service))
		}
		if err := table.Flush(); err != nil {
			return fmt.Errorf("laying out the table: %w", err)
		}
	}
	return write(w, "", out.Bytes())
}
