package cases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/e2e/internal/caseset"
)

// kube writes a case's objects into a real cluster with kubectl, and takes them
// out again.
type kube struct {
	ctx  context.Context
	made []string // kind, namespace and name of each, as kubectl has them
	uids map[string]string
	// anyIP lets the cluster choose the addresses of Services.
	anyIP bool
}

// run runs kubectl and returns what it wrote.
func (k *kube) run(ctx context.Context, input []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, *kubectl, args...)
	cmd.Stdin = bytes.NewReader(input)
	var notes bytes.Buffer
	cmd.Stderr = &notes
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(notes.String()))
	}
	return out, nil
}

// given handles one entry of a case's objects.
func (k *kube) given(raw json.RawMessage) error {
	var head struct {
		Op    string  `json:"op"`
		Ref   string  `json:"ref"`
		Sleep float64 `json:"sleep_s"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("reading given: %w", err)
	}
	switch {
	case head.Op != "":
		return k.do(caseset.Step{Op: head.Op, Ref: head.Ref})
	case head.Sleep > 0:
		return k.do(caseset.Step{Op: "sleep", Second: head.Sleep})
	}
	return k.create(raw)
}

// do makes one change.
func (k *kube) do(s caseset.Step) error {
	switch s.Op {
	case "create", "apply":
		return k.create(s.Object)
	case "sleep":
		<-time.After(time.Duration(s.Second * float64(time.Second)))
		return nil
	case "patch":
		return k.patch(s.Ref, s.Merge)
	case "delete":
		kind, namespace, name := split(s.Ref)
		_, err := k.run(k.ctx, nil, "delete", kind, name, "-n", namespace, "--force", "--grace-period=0")
		return err
	}
	return fmt.Errorf("unknown step %q", s.Op)
}

// create applies an object, and its status through the subresource.
func (k *kube) create(raw json.RawMessage) error {
	raw = uidRef.ReplaceAllFunc(raw, func(ref []byte) []byte {
		parts := uidRef.FindSubmatch(ref)
		uid := k.uids[string(parts[1])+"/"+string(parts[2])]
		if uid == "" {
			uid = "11111111-1111-4111-8111-111111111111" // an owner that the case never creates
		}
		return fmt.Appendf(nil, "%q", uid)
	})
	var o struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name, Namespace string
			UID             string `json:"uid"`
		} `json:"metadata"`
		Spec struct {
			Account string `json:"serviceAccountName"`
		} `json:"spec"`
		Status json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("reading an object: %w", err)
	}
	if o.Kind == "Pod" {
		account := o.Spec.Account
		if account == "" {
			account = "default"
		}
		// Only API servers with the admission plugin want it, and one is enough.
		_, _ = k.run(k.ctx, nil, "create", "serviceaccount", account, "-n", o.Metadata.Namespace)
	}
	if o.Kind == "Service" && k.anyIP {
		var err error
		if raw, err = withoutIPs(raw); err != nil {
			return err
		}
	}
	out, err := k.run(k.ctx, raw, "apply", "--server-side", "--force-conflicts", "-f", "-", "-o", "json")
	if err != nil {
		return err
	}
	kind := o.Kind
	if group, version, ok := strings.Cut(o.APIVersion, "/"); ok {
		kind += "." + version + "." + group
	}
	status := slices.Clone(o.Status) // Unmarshal writes over the array
	if err := json.Unmarshal(out, &o); err != nil {
		return fmt.Errorf("reading what kubectl made: %w", err)
	}
	k.uids[o.Kind+"/"+o.Metadata.Name] = o.Metadata.UID
	if o.Kind != "Namespace" { // the next case uses it, and its end takes long
		k.made = append(k.made, kind+"/"+o.Metadata.Namespace+"/"+o.Metadata.Name)
	}
	if status == nil {
		return nil
	}
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return fmt.Errorf("writing a status: %w", err)
	}
	_, err = k.run(k.ctx, nil, "patch", kind, o.Metadata.Name, "-n", o.Metadata.Namespace, "--subresource=status", "--type=merge", "-p", string(body))
	return err
}

// withoutIPs takes a Service's addresses out, but for "None".
func withoutIPs(raw []byte) ([]byte, error) {
	var service map[string]any
	if err := json.Unmarshal(raw, &service); err != nil {
		return nil, fmt.Errorf("reading a Service: %w", err)
	}
	if spec, ok := service["spec"].(map[string]any); ok && spec["clusterIP"] != "None" {
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	out, err := json.Marshal(service)
	if err != nil {
		return nil, fmt.Errorf("writing a Service: %w", err)
	}
	return out, nil
}

// patch merges into an object; what is in its status goes through the subresource.
func (k *kube) patch(ref string, merge json.RawMessage) error {
	kind, namespace, name := split(ref)
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(merge, &parts); err != nil {
		return fmt.Errorf("reading a merge patch: %w", err)
	}
	args := []string{"patch", kind, name, "-n", namespace, "--type=merge", "-p", string(merge)}
	if _, ok := parts["status"]; ok {
		args = append(args, "--subresource=status")
	}
	_, err := k.run(k.ctx, nil, args...)
	return err
}

// clean deletes what was made, the last first. The test's context is over.
func (k *kube) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), time.Minute)
	defer cancel()
	var errs []error
	for _, made := range slices.Backward(k.made) {
		kind, namespace, name := split(made)
		args := []string{"delete", kind, name, "--force", "--grace-period=0", "--ignore-not-found"}
		if namespace != "" {
			args = append(args, "-n", namespace)
		}
		if _, err := k.run(ctx, nil, args...); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Println("objects of a case are left:", err)
	}
}

// split reads Kind[.version.group]/namespace/name, or Kind/name.
func split(ref string) (kind, namespace, name string) {
	kind, rest, _ := strings.Cut(ref, "/")
	namespace, name, ok := strings.Cut(rest, "/")
	if !ok {
		return kind, "", rest
	}
	return kind, namespace, name
}
