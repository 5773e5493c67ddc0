package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weftmesh/weft/proxy/internal/redirect/redirecttest"
)

const podArgs = "--incoming-proxy-port 4143 --outgoing-proxy-port 4140 --proxy-uid 2102 --inbound-ports-to-ignore 4190,4191"

// TestInit runs the process inside a pod's network, as the kubelet does, and
// from outside by --netns.
func TestInit(t *testing.T) {
	for name, outside := range map[string]bool{"inside": false, "by --netns": true} {
		t.Run(name, func(t *testing.T) {
			pod, _ := redirecttest.Network(t)
			pod.Serve("outbound", "127.0.0.1:4140")
			argv := append([]string{"linkerd2-proxy-init"}, strings.Fields(podArgs)...)
			if outside {
				argv = append(argv, "--netns", pod.Path())
			}
			cmd := program(t, argv...)
			var problems bytes.Buffer
			cmd.Stderr = &problems
			var err error
			if outside {
				err = cmd.Run()
			} else {
				pod.Do(func() { err = cmd.Run() })
			}
			if err != nil {
				t.Fatalf("%v: %s", err, problems.String())
			}
			if got := pod.Ask(redirecttest.ServiceIP+":80", redirecttest.Who{UID: 1000}); got != "outbound 10.99.0.10:80" {
				t.Errorf("the application reached %q; %s", got, problems.String())
			}
		})
	}
}

// TestInitWithoutTheCapability runs it in a user namespace that owns no network.
func TestInitWithoutTheCapability(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the process must be one that could do harm otherwise: run this test as root")
	}
	cmd := program(t, append([]string{"linkerd2-proxy-init"}, strings.Fields(podArgs)...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	err := cmd.Run()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("this machine allows no user namespaces: run where user.max_user_namespaces is above 0")
	}
	for _, want := range []string{"not redirected", "why:", "NET_ADMIN", "next:", "runAsRoot"} {
		if code(err) != 1 || !strings.Contains(problems.String(), want) {
			t.Errorf("%v: it does not say %q: %s", err, want, problems.String())
		}
	}
}

// TestValidate runs the validator's process with what the injector gives it.
func TestValidate(t *testing.T) {
	pod, _ := redirecttest.Network(t)
	validate := func(timeout string) (int, string) {
		cmd := program(t, "linkerd2-network-validator", "--log-format", "plain", "--log-level", "debug",
			"--connect-addr", "1.1.1.1:20001", "--listen-addr", "0.0.0.0:4140", "--timeout", timeout)
		var problems bytes.Buffer
		cmd.Stderr = &problems
		var err error
		pod.Do(func() { err = cmd.Run() })
		return code(err), problems.String()
	}
	if got, said := validate("300ms"); got != 95 || !strings.Contains(said, "next:") {
		t.Errorf("not redirected: exit %d, %s", got, said)
	}
	cmd := program(t, append([]string{"linkerd2-proxy-init", "--netns", pod.Path()}, strings.Fields(podArgs)...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got, said := validate("10s"); got != 0 {
		t.Errorf("redirected: exit %d, %s", got, said)
	}
}
