package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
	"github.com/weftmesh/weft/services/kit/run"
	"github.com/weftmesh/weft/tools/weft/internal/show"
)

// weft runs the command and returns its exit code and what it wrote.
func weft(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(t.Context(), args, &o, &e)
	return code, o.String(), e.String()
}

func TestWrongCommandLines(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"command", []string{"stats"}, "weft: unknown command \"stats\" for \"weft\"\n  next:  see `weft --help`\n"},
		{"flag", []string{"status", "--nope"}, "weft: unknown flag: --nope\n  next:  see `weft status --help`\n"},
		{"argument", []string{"version", "x"}, "weft: argument \"x\" is one too many for `weft version`\n  next:  see `weft version --help`\n"},
		{"argument of install", []string{"install", "x"}, "weft: argument \"x\" is one too many for `weft install`\n  next:  see `weft install --help`\n"},
		{"no source", []string{"uninject"}, "weft: `weft uninject` wants one file, directory or URL, or - for standard input, but got 0 arguments\n  next:  see `weft uninject --help`\n"},
		{
			"no identity",
			[]string{"inject", "--disable-identity", "-"},
			"weft: identity cannot be disabled\n  why:   every proxy has one: without it there is no mTLS\n  next:  leave --disable-identity away\n",
		},
		{
			"port",
			[]string{"install", "--inbound-port", "70000"},
			"weft: invalid argument \"70000\" for \"--inbound-port\" flag: \"70000\" is not a port: they go from 1 to 65535\n  next:  see `weft install --help`\n",
		},
		{
			"format",
			[]string{"status", "-o", "yaml"},
			"weft: invalid argument \"yaml\" for \"-o, --output\" flag: \"yaml\" is neither table nor json\n  next:  see `weft status --help`\n",
		},
		{
			"settings, with one dash and two",
			[]string{"status", "-wait=1h", "--hear", "soon"},
			`weft: the settings are wrong
  why:   2 settings are wrong
           -hear (WEFT_HEAR): "soon" is not a duration (like 1m30s): invalid duration "soon"
           -wait (WEFT_WAIT): 1h0m0s is not between 0 and 1m
  next:  correct the above; --help lists every setting
`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := weft(t, tt.args...)
			if code != run.ExitConfig || out != "" {
				t.Errorf("exit code = %d, stdout %q, want %d and nothing", code, out, run.ExitConfig)
			}
			if diff := cmp.Diff(tt.want, errOut); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	code, out, errOut := weft(t, "version", "--client", "-v")
	if code != 0 || !strings.HasPrefix(out, "Client version: dev\nClient commit: unknown\nClient platform: go1.") || errOut != "" {
		t.Errorf("exit code = %d, stdout %q, stderr %q", code, out, errOut)
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	code, out, _ := weft(t)
	if code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
	for _, make := range commands() {
		cmd := make()
		if strings.Contains(out, "\n  "+cmd.Name()+" ") == cmd.Hidden || cmd.Short == "" {
			t.Errorf("help lacks %q or what it is for, or it names what is hidden", cmd.Name())
		}
	}
}

// Words in backquotes are what pflag calls a flag's value: a command that is named
// there would be taken for one.
func TestValuesOfFlagsAreOneWord(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name, usage := pflag.UnquoteUsage(f); strings.Contains(name, " ") || usage == "" && !f.Hidden {
				t.Errorf("%s --%s: value %q, usage %q", cmd.CommandPath(), f.Name, name, usage)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot())
}

func TestTwoDashes(t *testing.T) {
	known := map[string]bool{"bus.servers": true, "wait": true, "o": false}
	got := twoDashes([]string{"status", "-bus.servers=a", "-wait", "1s", "-o", "json", "--wait=2s", "-x", "-", "--", "-wait"}, known)
	want := []string{"status", "--bus.servers=a", "--wait", "1s", "-o", "json", "--wait=2s", "-x", "-", "--", "-wait"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("twoDashes() (-want +got):\n%s", diff)
	}
}

func TestStatusWithoutABus(t *testing.T) {
	t.Setenv("WEFT_BUS_SERVERS", "nats://127.0.0.1:1") // nobody's port
	code, out, errOut := weft(t, "status", "-wait", "100ms")
	want := "weft: no bus answers\n" +
		"  why:   nats://127.0.0.1:1: nothing listens there\n" +
		"  next:  start the mesh (`weft demo` runs a small one), or name its bus with --bus.servers or WEFT_BUS_SERVERS\n"
	if code != run.ExitFailed || out != "" || errOut != want {
		t.Errorf("exit code = %d, stdout %q, stderr:\n%s\nwant %d and:\n%s", code, out, errOut, run.ExitFailed, want)
	}
}

func TestStatusOfAnEmptyMesh(t *testing.T) {
	server := bustest.Server(t)
	code, _, errOut := weft(t, "status", "-bus.servers", server.Config().Servers[0], "-hear", "50ms")
	if code != run.ExitFailed || !strings.Contains(errOut, `no process of cluster "local" is on the bus`) ||
		!strings.Contains(errOut, "No heartbeat answers: listening for 50ms") {
		t.Errorf("exit code = %d, stderr:\n%s", code, errOut)
	}
}

func TestStatusAsksHeartbeat(t *testing.T) {
	server := bustest.Server(t)
	ctx, cancel := context.WithCancel(t.Context())
	self := server.Join("local")
	served := make(chan error, 1)
	go func() {
		served <- bus.ServeRoll(ctx, self, func() *busv1.Roll {
			now := time.Now().UnixNano()
			return &busv1.Roll{Entries: []*busv1.RollEntry{{
				LastHeardNs: now,
				Presence:    &busv1.Presence{Service: "watcher", Instance: "w1", Version: "v1", Epoch: 7, Seq: 9, Leader: true, Ready: true, StartedAtNs: now},
			}}}
		})
	}()
	defer func() { cancel(); <-served }()

	// The subscription may be a moment behind: without it the command listens
	// for 1 ms, hears nobody, and is asked again.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var code int
	var out, errOut string
	for range 200 {
		if code, out, errOut = weft(t, "status", "-bus.servers", server.Config().Servers[0], "-hear", "1ms"); code == 0 {
			break
		}
		<-tick.C
	}
	want := "SERVICE    INSTANCE  VERSION  EPOCH/SEQ  LAG  STATE  AGE\n" +
		"watcher *  w1        v1       7/9        -    live   0s\n* leads: it writes the log\n"
	if code != 0 || out != want || errOut != "" {
		t.Errorf("exit code = %d, stdout:\n%s\nwant:\n%s\nstderr: %s", code, out, want, errOut)
	}

	code, out, _ = weft(t, "status", "-bus.servers", server.Config().Servers[0], "-o", "json")
	var status show.Status
	if err := json.Unmarshal([]byte(out), &status); code != 0 || err != nil || status.Source != show.Heartbeat || status.Processes[0].Seq != 9 {
		t.Errorf("exit code = %d, %v, status %+v", code, err, status)
	}
}
