package conf_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/kit/conf"
)

func TestList(t *testing.T) {
	type inner struct {
		Servers []string `help:"where"`
	}
	got, err := conf.List(struct {
		Quick bool
		Bus   inner
	}{Bus: inner{Servers: []string{"a", "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []conf.Setting{
		{Flag: "quick", Env: "WEFT_QUICK", Switch: true},
		{Flag: "bus.servers", Env: "WEFT_BUS_SERVERS", Help: "where", Default: "a,b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List() (-want +got):\n%s", diff)
	}
	if _, err := conf.List(3); err == nil {
		t.Error("List() of a number = nil")
	}
}
