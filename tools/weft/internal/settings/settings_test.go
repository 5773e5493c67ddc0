package settings_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/weftmesh/weft/services/kit/conf"
	"github.com/weftmesh/weft/tools/weft/internal/settings"
)

type bus struct{ Servers []string }

type config struct {
	Quick bool
	Count int
	Bus   bus
}

func load(t *testing.T, args ...string) (config, error) {
	t.Helper()
	cmd := &cobra.Command{Use: "x"}
	read, err := settings.Bind(cmd, config{Count: 1, Bus: bus{Servers: []string{"a"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return read()
}

func TestBind(t *testing.T) {
	t.Setenv("WEFT_COUNT", "2")
	t.Setenv("WEFT_BUS_SERVERS", "b")
	tests := []struct {
		name string
		args []string
		want config
	}{
		{"environment over default", nil, config{Count: 2, Bus: bus{Servers: []string{"b"}}}},
		{"flag over environment", []string{"--bus.servers=c,d", "--quick"}, config{Quick: true, Count: 2, Bus: bus{Servers: []string{"c", "d"}}}},
		{"value apart", []string{"--bus.servers", "c", "--quick=false"}, config{Count: 2, Bus: bus{Servers: []string{"c"}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := load(t, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestBindReportsNonsense(t *testing.T) {
	t.Setenv("WEFT_BUS_SERVRS", "b")
	_, err := load(t, "--count=many")
	var wrong *conf.Error
	if !errors.As(err, &wrong) || len(wrong.Problems) != 2 {
		t.Errorf("read() = %v, want both problems", err)
	}
}
