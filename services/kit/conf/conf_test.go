package conf_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/services/kit/conf"
)

type busConfig struct {
	Servers []string `help:"where the bus is"`
	Cluster string   `help:"this cluster's name"`
	TLSCert string
	Clock   func() time.Time
}

func (c busConfig) Check() error {
	var errs []error
	if strings.Contains(c.Cluster, ".") {
		errs = append(errs, conf.Bad("Cluster", "%q has a dot", c.Cluster))
	}
	if len(c.Servers) == 0 {
		errs = append(errs, errors.New("no server is named"))
	}
	return errors.Join(errs...)
}

type settings struct {
	Listen   string `help:"address of the API"`
	Grace    time.Duration
	Ratio    float64
	Workers  int
	Port     uint16
	Networks []netip.Prefix
	Verbose  bool
	Bus      busConfig `help:"the bus"`
	internal string
	Own      string `conf:"-"`
}

func defaults() settings {
	return settings{
		Listen: ":8086", Grace: time.Second, internal: "kept", Own: "kept",
		Bus: busConfig{Servers: []string{"127.0.0.1:4222"}, Cluster: "local"},
	}
}

func TestLoadPrecedence(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		environ []string
		want    func(*settings)
	}{
		{name: "defaults", want: func(*settings) {}},
		{
			name: "environment over default", environ: []string{"WEFT_LISTEN=:1", "WEFT_BUS_CLUSTER=east"},
			want: func(s *settings) { s.Listen = ":1"; s.Bus.Cluster = "east" },
		},
		{
			name: "flag over environment", environ: []string{"WEFT_LISTEN=:1"}, args: []string{"-listen", ":2"},
			want: func(s *settings) { s.Listen = ":2" },
		},
		{
			name: "last flag wins", args: []string{"-listen=:1", "--listen=:2"},
			want: func(s *settings) { s.Listen = ":2" },
		},
		{
			name: "every type",
			args: []string{
				"-grace=1m30s", "-ratio", "0.5", "-workers=-3", "-port=0xff", "-verbose",
				"-networks", "10.0.0.0/8, fd00::/8", "-bus.servers=a:1,,b:2", "-bus.tls-cert", "x.pem",
			},
			want: func(s *settings) {
				s.Grace, s.Ratio, s.Workers, s.Port, s.Verbose = 90*time.Second, 0.5, -3, 255, true
				s.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
				s.Bus.Servers, s.Bus.TLSCert = []string{"a:1", "b:2"}, "x.pem"
			},
		},
		{
			name: "switch takes no following value", args: []string{"-verbose", "-listen", ":2", "-verbose=false"},
			want: func(s *settings) { s.Listen = ":2" },
		},
		{
			name: "empty variable is not set", environ: []string{"WEFT_LISTEN=", "WEFT_GRACE="},
			want: func(*settings) {},
		},
		{
			name: "empty flag is", args: []string{"-listen="},
			want: func(s *settings) { s.Listen = "" },
		},
		{
			name:    "others' variables are left alone",
			environ: []string{"WEFT_UNRELATED=1", "HOME=/", "WEFT_BUS_SERVICE_HOST=10.0.0.1", "WEFT_BUS_PORT=tcp://10.0.0.1:1", "WEFT_BUS_PORT_4222_TCP_ADDR=10.0.0.1", "WEFT_BUS_SERVICE_PORT_NATS=4222"},
			want:    func(*settings) {},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := conf.LoadFrom(defaults(), tt.args, tt.environ)
			if err != nil {
				t.Fatalf("LoadFrom() = %v", err)
			}
			want := defaults()
			tt.want(&want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("LoadFrom() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadReportsEveryProblem(t *testing.T) {
	_, err := conf.LoadFrom(defaults(),
		[]string{"-grace=soon", "-lisen", ":1", "stray", "-port", "70000", "-bus.cluster=a.b", "-bus.servers=", "-verbose=maybe", "-networks=10.0.0.0/8,10/8", "-ratio"},
		[]string{"WEFT_WORKERS=many", "WEFT_BUS_SERVRS=x"})
	var wrong *conf.Error
	if !errors.As(err, &wrong) {
		t.Fatalf("LoadFrom() = %v, want *conf.Error", err)
	}
	var got []string
	for _, p := range wrong.Problems {
		got = append(got, p.String())
	}
	want := []string{
		`-workers (WEFT_WORKERS): "many" is not a number in range: invalid syntax`,
		`WEFT_BUS_SERVRS: no setting has this name; did you mean WEFT_BUS_SERVERS?`,
		`-grace (WEFT_GRACE): "soon" is not a duration (like 1m30s): invalid duration "soon"`,
		`-lisen: no flag has this name; did you mean listen?`,
		`argument "stray" belongs to no flag`,
		`-port (WEFT_PORT): "70000" is not a number in range: value out of range`,
		`-verbose (WEFT_VERBOSE): "maybe" is not true or false: invalid syntax`,
		`-networks (WEFT_NETWORKS): "10.0.0.0/8,10/8" is not a list with commas: item "10/8": netip.ParsePrefix("10/8"): ParseAddr("10"): unable to parse IP`,
		`-ratio (WEFT_RATIO): a value must follow`,
		`-bus.cluster (WEFT_BUS_CLUSTER): "a.b" has a dot`,
		`-bus.* (WEFT_BUS_*): no server is named`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if first, _, _ := strings.Cut(err.Error(), "\n"); first != "11 settings are wrong" {
		t.Errorf("Error() begins %q, want the number of problems", first)
	}
}

func TestLoadLeavesDefaultsAlone(t *testing.T) {
	d := defaults()
	if _, err := conf.LoadFrom(d, []string{"-bus.servers=x"}, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"127.0.0.1:4222"}, d.Bus.Servers); diff != "" {
		t.Errorf("defaults changed (-want +got):\n%s", diff)
	}
	got, err := conf.LoadFrom(d, []string{"-listen=x", "-nonsense"}, nil)
	if err == nil || got.Listen != d.Listen {
		t.Errorf("LoadFrom() = %q, %v, want the defaults and an error", got.Listen, err)
	}
}

func TestLoadRefusesAFieldThatTextCannotFill(t *testing.T) {
	type odd struct{ Labels map[string]string }
	_, err := conf.LoadFrom(odd{}, nil, nil)
	if want := "setting -labels: a field of type map[string]string cannot be set from text"; err == nil || err.Error() != want {
		t.Errorf("LoadFrom() = %v, want %s", err, want)
	}
}

func TestEmbeddedStructHasNoPrefix(t *testing.T) {
	type Common struct{ Listen string }
	type embedding struct{ Common }
	got, err := conf.LoadFrom(embedding{}, []string{"-listen=:1"}, nil)
	if err != nil || got.Listen != ":1" {
		t.Errorf("LoadFrom() = %+v, %v", got, err)
	}
}

func TestHelp(t *testing.T) {
	_, err := conf.LoadFrom(defaults(), []string{"-nonsense", "-help"}, nil)
	var help *conf.Help
	if !errors.As(err, &help) {
		t.Fatalf("LoadFrom() = %v, want *conf.Help", err)
	}
	want := `Settings (a flag wins over its variable, a variable over the default):

  -listen TEXT
        address of the API
        WEFT_LISTEN, default ":8086"

  -grace DURATION
        WEFT_GRACE, default 1s
`
	if !strings.HasPrefix(help.Text, want) {
		t.Errorf("help = %s\nwant it to begin\n%s", help.Text, want)
	}
	if !strings.Contains(help.Text, "  -bus.servers A,B,…\n        where the bus is\n        WEFT_BUS_SERVERS, default 127.0.0.1:4222\n") {
		t.Errorf("help lacks the nested setting:\n%s", help.Text)
	}
	if strings.Contains(help.Text, "clock") || strings.Contains(help.Text, "own") {
		t.Errorf("help shows the code's own fields:\n%s", help.Text)
	}
}

func ExampleLoadFrom() {
	type config struct {
		Listen        string `help:"address of the gRPC API"`
		ClusterDomain string `help:"suffix of service names"`
	}
	cfg, err := conf.LoadFrom(config{Listen: ":8086", ClusterDomain: "cluster.local"},
		[]string{"-listen=:9000"}, []string{"WEFT_CLUSTER_DOMAIN=east.example"})
	fmt.Println(cfg.Listen, cfg.ClusterDomain, err)
	// Output: :9000 east.example <nil>
}
