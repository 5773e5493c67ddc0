package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	"github.com/weftmesh/weft/services/kit/run"
)

// asService makes the test binary be heartbeat instead of its tests.
const asService = "HEARTBEAT_TEST_BE_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) != "" {
		run.Main(name, wire)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asService+"=1")
	return cmd
}

func TestProcessKeepsTheRoll(t *testing.T) {
	server := bustest.Server(t)
	cmd := command(t, "-bus.servers", server.Config().Servers[0], "-announce", "50ms")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(stderr); sc.Scan(); {
		if strings.Contains(sc.Text(), "msg=started") {
			break
		}
	}
	self := server.Join("local")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		roll, err := bus.AskRoll(ctx, self)
		if err == nil && len(roll.GetEntries()) == 1 {
			p := roll.GetEntries()[0].GetPresence()
			if p.GetService() == name && p.GetVersion() == "dev" && p.GetReady() && !p.GetStale() {
				break
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the roll never held a ready heartbeat; last answer %v, %v", roll, err)
		case <-tick.C:
		}
	}
	heard, listening := make(chan bool, 1), make(chan struct{}, 1)
	go func() {
		for p, err := range bus.Hear(ctx, self) {
			if err != nil || p.GetLeaving() {
				heard <- err == nil
				return
			}
			select {
			case listening <- struct{}{}:
			default:
			}
		}
	}()
	select {
	case <-listening:
	case <-ctx.Done():
		t.Fatal("no presence was heard")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("heartbeat ended with %v", err)
	}
	if !<-heard {
		t.Error("heartbeat went without a farewell")
	}
}

func TestProcessRefusesNonsense(t *testing.T) {
	cmd := command(t, "-announce=-1s", "-bus.cluster=A.B")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != run.ExitConfig {
		t.Errorf("ended with %v, want exit %d", err, run.ExitConfig)
	}
	for _, want := range []string{"-announce (WEFT_ANNOUNCE): -1s is below zero", `"A.B" is not one word`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
}
