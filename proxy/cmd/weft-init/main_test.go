package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weftmesh/weft/proxy/internal/redirect"
)

var update = flag.Bool("update", false, "write the golden files anew")

// asProgram makes the test binary be weft-init.
const asProgram = "WEFT_INIT_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program is weft-init as a process, called by the name argv[0].
func program(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// TestGolden runs each file's first paragraph as a command line. What follows is
// what it must say, and its exit code.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			command, want, _ := strings.Cut(string(content), "\n\n")
			var out bytes.Buffer
			code := run(t.Context(), append([]string{"weft-init"}, strings.Fields(command)...), nil, &out, &out)
			got := fmt.Sprintf("%sexit %d\n", out.String(), code)
			if *update {
				if err := os.WriteFile(file, []byte(command+"\n\n"+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("weft-init %s (-want +got):\n%s", command, diff)
			}
		})
	}
}

func TestJobIsChosenByName(t *testing.T) {
	for _, args := range [][]string{
		{"/usr/lib/linkerd/linkerd2-proxy-init"},
		{"weft-init", "init"},
		{"linkerd2-network-validator"},
		{"weft-init", "validate"},
		{"linkerd-await"},
		{"/weft-init", "await"},
		{"/weft-init", "linkerd-await"},
	} {
		var out, problems bytes.Buffer
		if code := run(t.Context(), append(args, "--help"), nil, &out, &problems); code != 0 || problems.Len() > 0 || out.Len() == 0 {
			t.Errorf("%v --help: exit %d, %q", args, code, problems.String())
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"weft-init", "version"}, nil, &out, &out); code != 0 || out.Len() == 0 {
		t.Errorf("version: exit %d, %q", code, out.String())
	}
	for _, args := range [][]string{nil, {"weft-init"}, {"weft-init", "iptables"}} {
		var problems bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &problems); code != redirect.ExitUsage || !strings.Contains(problems.String(), "next:") {
			t.Errorf("%v: exit %d, %q", args, code, problems.String())
		}
	}
}

// Each argument can be said in every way that Linkerd's programs take.
func TestArgumentForms(t *testing.T) {
	want := ""
	for _, line := range []string{
		"--incoming-proxy-port 4143 --outgoing-proxy-port 4140 --proxy-uid 2102 --inbound-ports-to-ignore 1,2,9",
		"--incoming-proxy-port=4143 --outgoing-proxy-port=4140 --proxy-uid=2102 --inbound-ports-to-ignore=1,2,9",
		"-p 4143 -o 4140 -u 2102 --inbound-ports-to-ignore 1,2 --inbound-ports-to-ignore 9 -w",
		"-p=4143 -o 4140 -u 2102 --inbound-ports-to-ignore 1-2,9, --firewall-bin-path iptables-nft --firewall-save-bin-path x",
	} {
		var out bytes.Buffer
		code := run(t.Context(), append([]string{"linkerd2-proxy-init", "--simulate"}, strings.Fields(line)...), nil, &out, &out)
		if want == "" {
			want = out.String()
		}
		if code != 0 || out.String() != want {
			t.Errorf("%s: exit %d, %s", line, code, cmp.Diff(want, out.String()))
		}
	}
}

// FuzzInitArguments: nothing that can be written crashes it, and it ends in rules
// or in exit 64.
func FuzzInitArguments(f *testing.F) {
	f.Add("-p 1 -o 2 -u 3 --ports-to-redirect 1-2,3 --subnets-to-ignore 10.0.0.0/8 --ipv6=false")
	f.Add("--netns / --timeout-close-wait-secs 99999999999999999999")
	f.Add("-- - --= -p -p")
	f.Add("--log-level info,linkerd=debug --log-format json --log-level ,,=")
	f.Fuzz(func(t *testing.T, line string) {
		var out bytes.Buffer
		args := append([]string{"linkerd2-proxy-init", "--simulate"}, strings.Fields(line)...)
		if strings.Contains(line, "simulate") {
			return // may switch it off
		}
		switch code := run(t.Context(), args, nil, &out, &out); code {
		case redirect.ExitUsage:
			if !strings.Contains(out.String(), "next:") {
				t.Errorf("it does not say what to do: %s", out.String())
			}
		case 0:
		default:
			t.Errorf("exit %d: %s", code, out.String())
		}
	})
}

func TestSum(t *testing.T) {
	for _, tt := range []struct {
		args string
		want time.Duration
		bad  bool
	}{
		{args: "5", want: 5 * time.Second},
		{args: "0", want: 0},
		{args: "0.5", want: 500 * time.Millisecond},
		{args: "1m 30s", want: 90 * time.Second},
		{args: "2h", want: 2 * time.Hour},
		{args: "99999999999999d 1e300d", want: 365 * 24 * time.Hour},
		{args: "infinity", want: 365 * 24 * time.Hour}, // as sleep(1) takes it
		{args: "", bad: true},
		{args: "-1", bad: true},
		{args: "NaN", bad: true},
		{args: "1ms", bad: true},
		{args: "s", bad: true},
	} {
		got, err := sum(strings.Fields(tt.args))
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("sum(%q) = %v, %v; want %v", tt.args, got, err, tt.want)
		}
	}
}

func TestSleepEnds(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"/bin/sleep", "0.001"}, nil, &out, &out); code != 0 || out.Len() > 0 {
		t.Errorf("exit %d, %q", code, out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := run(ctx, []string{"/bin/sleep", "1d"}, nil, &out, &out); code != 143 {
		t.Errorf("ended by a signal: exit %d, want 143", code)
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"10s": 10 * time.Second, "500ms": 500 * time.Millisecond, "2m": 2 * time.Minute, "1d": 24 * time.Hour, "0": 0, " 3h ": 3 * time.Hour,
	} {
		var d duration
		if err := d.Set(in); err != nil || time.Duration(d) != want {
			t.Errorf("%q is %v, %v; want %v", in, time.Duration(d), err, want)
		}
	}
	for _, in := range []string{"", "120", "s", "foobars", "18446744073709551615s", "-1s", "200000d", "1y"} {
		var d duration
		if err := d.Set(in); err == nil {
			t.Errorf("%q is %v, want an error", in, time.Duration(d))
		}
	}
}
