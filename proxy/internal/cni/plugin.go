// Package cni is the CNI plugin linkerd-cni: chained after the plugin that makes
// a pod's network, it sends the traffic of pods that have a proxy to that proxy,
// so that no container of theirs needs NET_ADMIN. Pods without one pass through
// untouched, as does the result of the plugins before.
//
// A pod with a proxy that cannot be redirected must not start: every error fails
// the call. Every call ends within a deadline.
package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/weftmesh/weft/proxy/internal/cni/apiserver"
	"github.com/weftmesh/weft/proxy/internal/redirect"
	"github.com/weftmesh/weft/services/kit/pause"
)

const (
	deadline = 30 * time.Second       // bounds a call; the kubelet gives up after 2 minutes
	patience = 5 * time.Second        // bounds one question to the API server
	between  = 300 * time.Millisecond // two such questions
	longest  = 4 << 20                // bounds the configuration, in bytes
)

// Call is one call of the plugin by a container runtime.
type Call struct {
	Getenv         func(string) string // CNI_COMMAND and the others
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Run answers the call on Stdout, as the CNI specification has it, and returns
// the exit code.
func (c Call) Run(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	version := versions[0]
	answer, err := c.answer(ctx, &version)
	if err != nil {
		answer, _ = json.Marshal(describe(version, err)) // strings and a number
	}
	if len(answer) > 0 {
		if _, werr := c.Stdout.Write(append(answer, '\n')); werr != nil && err == nil {
			err = werr
		}
	}
	if err != nil {
		return 1
	}
	return 0
}

func (c Call) answer(ctx context.Context, version *string) ([]byte, error) {
	command := c.Getenv("CNI_COMMAND")
	input, err := io.ReadAll(io.LimitReader(c.Stdin, longest+1))
	if err != nil {
		return nil, fail(codeIO, "the network configuration cannot be read", err.Error(), "look at the container runtime's log")
	}
	if len(input) > longest {
		return nil, fail(codeDecode, "the network configuration is too long", fmt.Sprintf("it has more than %d bytes", longest), "look at the node's conflist")
	}
	if command == "VERSION" {
		return supported(input)
	}
	conf, err := ParseConf(input)
	if err != nil {
		if command == "DEL" {
			return nil, nil // there is nothing of ours to delete
		}
		return nil, err
	}
	*version = conf.CNIVersion
	switch command {
	case "ADD":
		return c.add(ctx, conf)
	case "CHECK":
		return nil, c.check(ctx, conf)
	case "DEL", "GC":
		return nil, nil // the rules end with the pod's namespace
	case "STATUS":
		return nil, status(conf)
	}
	return nil, fail(codeEnv, fmt.Sprintf("CNI_COMMAND is %q", clip(command)), "it is one of ADD, CHECK, DEL, GC, STATUS, VERSION", "look at the container runtime's version")
}

func supported(input []byte) ([]byte, error) {
	asked := struct {
		CNIVersion string `json:"cniVersion"`
	}{newest}
	_ = json.Unmarshal(input, &asked) // a runtime may ask without any
	return json.Marshal(map[string]any{"cniVersion": asked.CNIVersion, "supportedVersions": versions})
}

// status fails where ADD would.
func status(conf *Conf) error {
	if _, err := apiserver.FromKubeconfig(conf.Kubernetes.Kubeconfig); err != nil {
		return fail(codeNotReady, "the API server cannot be asked", err.Error(), "see whether the pod of the DaemonSet linkerd-cni runs on this node")
	}
	return nil
}

func (c Call) logger(conf *Conf) *slog.Logger {
	level := slog.LevelWarn
	switch conf.LogLevel {
	case "debug":
		level = slog.LevelDebug
	case "info":
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(c.Stderr, &slog.HandlerOptions{Level: level}))
}

func (c Call) add(ctx context.Context, conf *Conf) ([]byte, error) {
	result, err := conf.result()
	if err != nil {
		return nil, err
	}
	log := c.logger(conf)
	rules, why, err := c.plan(ctx, conf)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		log.Debug("not redirected", "reason", why)
		return result, nil
	case conf.Linkerd.Simulate:
		log.Warn("only simulated, so the pod is not redirected", "rules", rules.String())
		return result, nil
	}
	netns := c.Getenv("CNI_NETNS")
	if netns == "" {
		return nil, fail(codeEnv, "CNI_NETNS is not set", "the container runtime does not say which network namespace is the pod's", "look at the container runtime's version")
	}
	if err := redirect.Within(netns, func(in redirect.Namespace) error { return redirect.Apply(rules, in) }); err != nil {
		return nil, err
	}
	log.Info("the pod's traffic is redirected to its proxy", "netns", netns)
	return result, nil
}

func (c Call) check(ctx context.Context, conf *Conf) error {
	_, why, err := c.plan(ctx, conf)
	if err != nil || why != "" || conf.Linkerd.Simulate {
		return err
	}
	return redirect.Within(c.Getenv("CNI_NETNS"), func(in redirect.Namespace) error {
		ok, err := redirect.Installed(in)
		if err == nil && !ok {
			err = fail(codeKernel, "the pod's traffic is not redirected to its proxy", "its network namespace has no table inet "+redirect.Table,
				"delete the pod so that it is created anew")
		}
		return err
	})
}

// plan asks the API server about the pod: rules, or why it needs none.
func (c Call) plan(ctx context.Context, conf *Conf) (rules redirect.Rules, why string, err error) {
	who, err := parseArgs(c.Getenv("CNI_ARGS"))
	if err != nil {
		return rules, "", err
	}
	if who.namespace == "" || who.name == "" {
		return rules, "the runtime names no pod: this is not Kubernetes", nil
	}
	api, err := apiserver.FromKubeconfig(conf.Kubernetes.Kubeconfig)
	if err != nil {
		return rules, "", fail(codeAgain, "the API server cannot be asked about the pod", err.Error(),
			"see whether the pod of the DaemonSet linkerd-cni runs on this node: it writes that file")
	}
	asker := asker{api, who}
	pod, err := asker.pod(ctx)
	if err != nil {
		return rules, "", err
	}
	if why := skipped(pod); why != "" {
		return rules, why, nil
	}
	var namespace apiserver.Namespace
	if err := asker.get(ctx, "/api/v1/namespaces/"+who.namespace, &namespace); err != nil {
		return rules, "", err
	}
	var ports []string
	if controlPlane(pod) {
		var service apiserver.Service
		ports = usualAPIPorts
		if err := asker.get(ctx, "/api/v1/namespaces/default/services/kubernetes", &service); err == nil {
			ports = apiPorts(&service)
		}
	}
	options, bad := conf.Linkerd.options(pod, namespace.Metadata.Annotations, ports)
	rules, err = redirect.Plan(options)
	return rules, "", mistakes(bad, err)
}

// asker asks the API server again until it answers or the call's time is up.
type asker struct {
	api *apiserver.Client
	who args
}

// errOther is what the API server's memory of an older pod of that name is.
var errOther = errors.New("the API server still names an older pod")

// pod is the pod, not an older one of that name: names are used again.
func (a asker) pod(ctx context.Context) (*apiserver.Pod, error) {
	var pod *apiserver.Pod
	err := a.until(ctx, func(ctx context.Context) error {
		pod = &apiserver.Pod{}
		if err := a.api.Get(ctx, apiserver.PodPath(a.who.namespace, a.who.name), nil, pod); err != nil {
			return err
		}
		// A static pod's uid is that of its file, which its mirror carries here.
		const mirror = "kubernetes.io/config.mirror"
		if a.who.uid != "" && pod.Metadata.UID != a.who.uid && pod.Metadata.Annotations[mirror] != a.who.uid {
			return errOther
		}
		return nil
	})
	return pod, err
}

func (a asker) get(ctx context.Context, path string, into any) error {
	return a.until(ctx, func(ctx context.Context) error { return a.api.Get(ctx, path, nil, into) })
}

func (a asker) until(ctx context.Context, ask func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, patience)
		err := ask(once)
		cancel()
		if err == nil {
			return nil
		}
		switch apiserver.Code(err) {
		case 401, 403:
			return fail(codeAgain, "the API server refuses to speak about the pod", err.Error(),
				"see whether the pod of the DaemonSet linkerd-cni runs on this node (it renews the token) and whether its ClusterRole reads pods, namespaces and services")
		case 404:
			return fail(codeAgain, "the API server does not know the pod", err.Error(), "if it was deleted, nothing; otherwise the kubelet tries again by itself")
		}
		if !pause.For(ctx, between) {
			return fail(codeAgain, "whether the pod has a proxy could not be learned", err.Error(),
				"see whether the node reaches the API server; the kubelet tries again by itself")
		}
	}
}
