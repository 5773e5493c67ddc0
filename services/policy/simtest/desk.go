package simtest

import (
	"fmt"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/services/policy/internal/derive"
	"github.com/weftmesh/weft/services/policy/internal/serve"
	"github.com/weftmesh/weft/services/policy/internal/table"
)

// Desk is what a policy process answers, without a bus: rows go straight into its
// tables. A workload lets nobody in by default.
type Desk struct {
	tables *table.Tables
	// Inbound and Outbound are the APIs as a gRPC server would have them.
	Inbound  inbound.InboundServerPoliciesServer
	Outbound outbound.OutboundPoliciesServer
}

// NewDesk makes a desk that has read a log with these rows.
func NewDesk(rows ...bus.Change) *Desk {
	c := cluster()
	c.DefaultPolicy = derive.Deny
	d := &Desk{tables: table.New(c)}
	d.tables.Apply(table.Cut{Changes: rows, Complete: true})
	serve.New(d.tables, c, serve.Config{}, prometheus.NewRegistry()).Register(d)
	return d
}

// RegisterService implements grpc.ServiceRegistrar.
func (d *Desk) RegisterService(_ *grpc.ServiceDesc, impl any) {
	switch api := impl.(type) {
	case inbound.InboundServerPoliciesServer:
		d.Inbound = api
	case outbound.OutboundPoliciesServer:
		d.Outbound = api
	}
}

// Apply brings what the log brings.
func (d *Desk) Apply(changes ...bus.Change) { d.tables.Apply(table.Cut{Changes: changes}) }

// Judge makes every object's status, as the watcher asks for it.
func (d *Desk) Judge() error {
	after := ""
	for {
		list, more, _, err := d.tables.Judged(after, 100)
		if err != nil {
			return fmt.Errorf("judging: %w", err)
		}
		if !more {
			return nil
		}
		after = list[len(list)-1].Key
	}
}
