package resolve

import "context"

// Profile calls each with the target's ServiceProfile, at every change. It returns
// when ctx ends, or when there is none to be had; at once if the environment says
// that the target has none.
func (r *Resolver) Profile(ctx context.Context, t Target, each func(*Profile)) error {
	return r.profile(ctx, t, each)
}
