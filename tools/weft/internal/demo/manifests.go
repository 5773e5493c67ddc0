package demo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// cluster is the manifests of one cluster: its pods, which are injected and run
// before they are published, and its other documents by file name.
type cluster struct {
	pods  []*corev1.Pod
	files map[string][]byte
}

func readCluster(from string) (cluster, error) {
	c := cluster{files: map[string][]byte{}}
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return c, fmt.Errorf("reading manifests: %w", err)
	}
	if len(files) == 0 {
		return c, fmt.Errorf("reading manifests: no *.yaml file in %s", from)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("reading manifests: %w", err)
		}
		pods, rest, err := split(body)
		if err != nil {
			return c, fmt.Errorf("reading %s: %w", file, err)
		}
		c.pods = append(c.pods, pods...)
		if len(rest) > 0 {
			c.files[filepath.Base(file)] = rest
		}
	}
	return c, nil
}

// stage writes all but the pods to where the watcher reads them.
func (c cluster) stage(to string) error {
	if err := os.MkdirAll(to, 0o750); err != nil {
		return fmt.Errorf("staging manifests: %w", err)
	}
	for name, body := range c.files {
		if err := os.WriteFile(filepath.Join(to, name), body, 0o600); err != nil {
			return fmt.Errorf("staging manifests: %w", err)
		}
	}
	return nil
}

// split separates the pods of a file from its other documents.
func split(body []byte) (pods []*corev1.Pod, rest []byte, err error) {
	docs := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(body)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return pods, rest, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading documents: %w", err)
		}
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal(doc, pod); err != nil || pod.Kind != "Pod" {
			rest = append(append(rest, doc...), []byte("\n---\n")...)
			continue
		}
		if len(pod.Spec.Containers) == 0 || len(pod.Spec.Containers[0].Ports) == 0 || pod.Status.PodIP == "" {
			return nil, nil, fmt.Errorf("pod %s: the demo needs a container with a port, and status.podIP", pod.Name)
		}
		pod.UID = types.UID("demo-" + pod.Name)
		pods = append(pods, pod)
	}
}

// publish writes a running pod where the watcher finds it, whole or not at all,
// and a copy to keep, so that a person can bring back what was removed.
func publish(dir, keep string, pod *corev1.Pod) error {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	body, err := yaml.Marshal(pod)
	if err != nil {
		return fmt.Errorf("publishing %s: %w", pod.Name, err)
	}
	if err := replace(filepath.Join(keep, podFile(pod)), body); err != nil {
		return err
	}
	return replace(filepath.Join(dir, podFile(pod)), body)
}

func podFile(pod *corev1.Pod) string { return "pod-" + pod.Name + ".yaml" }

// replace writes a file by renaming, so that no reader sees half of it.
func replace(path string, body []byte) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
