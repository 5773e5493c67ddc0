package run_test

import (
	"context"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/kit/run"
)

func ExampleMain() {
	type config struct {
		Obs obs.Config `help:"logs, metrics and traces"`
	}
	run.Main("sample", func(ctx context.Context, s *run.Service) error {
		cfg, err := conf.Load(config{})
		if err != nil {
			return err
		}
		if err := obs.Attach(ctx, s, cfg.Obs); err != nil {
			return err
		}
		s.Part("work", func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		return nil
	})
}
