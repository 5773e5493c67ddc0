// Package resolve asks the control plane how to reach a target and keeps the
// answer: a policy, and for each backend the endpoints it has now.
//
// The last good answer stays when a stream ends, however it ends, and is replaced
// as a whole by the next; a set of endpoints is never emptied first. Values handed
// out never change.
package resolve

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"

	destpb "github.com/linkerd/linkerd2-proxy-api/go/destination"
	outpb "github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weftmesh/weft/proxy/internal/config"
	"github.com/weftmesh/weft/proxy/internal/control"
)

// Resolver asks for one proxy.
type Resolver struct {
	Destination destpb.DestinationClient
	Policy      outpb.OutboundPoliciesClient
	// Routes is the connection that Policy uses, for Weft's own service; nil asks
	// Linkerd's only.
	Routes grpc.ClientConnInterface

	Context  string         // sent to the destination service
	Workload string         // sent to the policy service
	Networks []netip.Prefix // addresses that may have a profile
	Suffixes config.Suffixes
	Backoff  config.Backoff
	// Limits bound each stream; zero for control planes on loopback.
	DestinationLimits, PolicyLimits config.Streams
	Log                             *slog.Logger

	lacking lacking
}

// ErrUnknown means that neither service knows the name.
var ErrUnknown = fmt.Errorf("no such service")

// Target calls each with the policy of the target: first when both services have
// answered, then at every change. It returns when ctx ends or when no answer can
// be had: ErrUnknown, or what the policy service refused with.
func (r *Resolver) Target(ctx context.Context, t Target, each func(*Policy)) error {
	var mu sync.Mutex
	var profile *Profile
	var policy *Policy
	var haveProfile, havePolicy bool
	var last error
	say := func() {
		if !haveProfile || !havePolicy {
			return
		}
		p := decide(t, profile, policy)
		if p == nil {
			last = ErrUnknown
			return
		}
		each(p)
	}
	unknown := func() bool { return haveProfile && havePolicy && last != nil }

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := r.profile(ctx, t, func(p *Profile) {
			mu.Lock()
			defer mu.Unlock()
			profile, haveProfile = p, true
			say()
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.log().Debug("no profile", "target", t.String(), "error", err)
		mu.Lock()
		defer mu.Unlock()
		haveProfile = true
		say()
		if unknown() {
			return last
		}
		return nil
	})
	g.Go(func() error {
		err := r.policy(ctx, t, func(p *Policy) {
			mu.Lock()
			defer mu.Unlock()
			policy, havePolicy = p, true
			say()
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c := status.Code(err); c != codes.NotFound && c != codes.Unimplemented {
			return fmt.Errorf("asking for the policy of %s: %w", t, err)
		}
		r.log().Debug("no policy", "target", t.String(), "error", err)
		mu.Lock()
		defer mu.Unlock()
		havePolicy = true
		say()
		if unknown() {
			return last
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	// Nobody will say more: what is known holds until the target is dropped.
	<-ctx.Done()
	return context.Cause(ctx)
}

// profile watches the profile if the target may have one; it returns at once,
// with nil, if not.
func (r *Resolver) profile(ctx context.Context, t Target, each func(*Profile)) error {
	if !r.profiled(t) {
		return nil
	}
	open := func(ctx context.Context) (control.Stream[*destpb.DestinationProfile], error) {
		return r.Destination.GetProfile(ctx, &destpb.GetDestination{Path: t.String(), ContextToken: r.Context})
	}
	return control.WatchWith(ctx, control.Options{
		Name: "profile", Backoff: r.Backoff, Limits: r.DestinationLimits, Log: r.Log,
		// Unknown is what Linkerd answers for a service that does not exist.
		Fatal: []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.Unknown, codes.Unimplemented},
	}, open, func(p *destpb.DestinationProfile) { each(profileOf(p)) })
}

func (r *Resolver) profiled(t Target) bool {
	if t.Addr.IsValid() {
		return slices.ContainsFunc(r.Networks, func(p netip.Prefix) bool { return p.Contains(t.Addr.Addr()) })
	}
	host := t.Authority
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	return r.Suffixes.Contains(host)
}

func (r *Resolver) policy(ctx context.Context, t Target, each func(*Policy)) error {
	open := func(ctx context.Context) (control.Stream[*Policy], error) { return r.openPolicy(ctx, t) }
	return control.WatchWith(ctx, control.Options{
		Name: "outbound policy", Backoff: r.Backoff, Limits: r.PolicyLimits, Log: r.Log,
		Fatal: []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.Unimplemented},
	}, open, each)
}

// Endpoints calls each with the complete set of the path's endpoints at every
// change. It returns when ctx ends or the path is refused for good.
func (r *Resolver) Endpoints(ctx context.Context, path string, each func(Op, []Endpoint)) error {
	var s set
	open := func(ctx context.Context) (control.Stream[*destpb.Update], error) {
		s.opened()
		return r.Destination.Get(ctx, &destpb.GetDestination{Path: path, ContextToken: r.Context})
	}
	return control.WatchWith(ctx, control.Options{
		Name: "endpoints", Backoff: r.Backoff, Limits: r.DestinationLimits, Log: r.Log,
		Fatal: []codes.Code{codes.InvalidArgument, codes.FailedPrecondition},
	}, open, func(u *destpb.Update) {
		if op, ok := s.apply(u); ok {
			each(op, s.endpoints())
		}
	})
}

func (r *Resolver) log() *slog.Logger {
	if r.Log == nil {
		return slog.Default()
	}
	return r.Log
}
