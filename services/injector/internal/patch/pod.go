package patch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weftmesh/weft/services/injector/internal/decide"
	"github.com/weftmesh/weft/services/injector/internal/values"
)

// Input is everything a pod's patch is made from.
type Input struct {
	Pod *corev1.Pod
	// Namespace is the pod's; NamespaceAnnotations are its namespace's.
	Namespace            string
	NamespaceAnnotations map[string]string
	Owner                decide.Owner
	Values               *values.Values
	// Anchors is the trust bundle, PEM.
	Anchors string
	// ControllerNamespace is the control plane's.
	ControllerNamespace string
	// Template says where in another object the pod's template is; nil for a pod.
	Template *Template
}

// Template is a pod template inside a workload. The command line patches such;
// the webhook sees pods only.
type Template struct {
	// At is the JSON pointer to the template.
	At string
	// Bare: the template has no metadata at all.
	Bare bool
	// CreatedBy says who adds the proxy.
	CreatedBy string
}

// job is one pod's patch being made.
type job struct {
	Input
	v *values.Values // effective
}

// Pod makes the patch that gives a pod its proxy. Warnings name annotations
// that could not be understood; an error means that the settings contradict
// themselves and the pod must not start without its proxy.
func Pod(in Input) (ops []Op, warnings []string, err error) {
	own := in.Pod.Annotations
	added := decide.Inherit(own, in.NamespaceAnnotations)
	opaque, ok := decide.Opaque(own, in.NamespaceAnnotations, decide.PodDefaults(in.Pod, in.Values.Proxy.OpaquePorts))
	if ok && in.Template == nil { // a manifest would keep it when its ports change
		added[decide.OpaqueAnnotation] = opaque
	}
	merged := maps.Clone(added)
	maps.Copy(merged, own)

	j := job{Input: in}
	j.v, warnings = in.Values.Effective(values.Annotations{
		Namespace: in.NamespaceAnnotations, Pod: merged, Own: own,
	}, in.Pod)
	if err := j.check(); err != nil {
		return nil, warnings, err
	}
	warnings = append(warnings, j.likeTheProxy()...)

	sum := sha256.Sum256([]byte(in.Anchors))
	added["linkerd.io/created-by"] = "linkerd/proxy-injector " + in.Values.LinkerdVersion
	var s script
	if t := in.Template; t != nil {
		s.at = t.At
		added["linkerd.io/created-by"] = t.CreatedBy
		if t.Bare {
			s.add("/metadata", map[string]string{})
		}
	}
	added["linkerd.io/proxy-version"] = j.v.Version(j.v.Proxy.Image)
	added["linkerd.io/trust-root-sha256"] = hex.EncodeToString(sum[:])

	s.members("/metadata/annotations", own != nil, added)
	s.members("/metadata/labels", in.Pod.Labels != nil, j.labels())
	if in.Pod.Spec.Volumes == nil {
		s.add("/spec/volumes", []corev1.Volume{})
	}
	if in.Pod.Spec.InitContainers == nil {
		s.add("/spec/initContainers", []corev1.Container{})
	}
	behind := j.redirect(&s)
	if on, _ := strconv.ParseBool(merged["config.linkerd.io/enable-debug-sidecar"]); on {
		s.add("/spec/containers/-", j.debug())
	}
	for _, volume := range j.volumes() {
		s.add("/spec/volumes/-", volume)
	}
	switch {
	case j.v.Proxy.NativeSidecar:
		// Behind ours, before the pod's own init containers: those have the mesh.
		s.add(fmt.Sprintf("/spec/initContainers/%d", behind), j.proxy())
	case j.v.Proxy.Await:
		s.add("/spec/containers/0", j.proxy())
	default:
		s.add("/spec/containers/-", j.proxy())
	}
	return s.ops, warnings, nil
}

// check finds settings that cannot work together.
func (j *job) check() error {
	switch h := j.v.Proxy.LogHTTPHeaders; h {
	case "", "off", "insecure":
	default:
		return fmt.Errorf("proxy-log-http-headers %.60q is neither insecure nor off", h)
	}
	if j.v.ProxyInit.CloseWaitTimeoutSecs > 0 && !j.v.ProxyInit.RunAsRoot && !j.v.CNIEnabled {
		return errors.New("close-wait-timeout needs proxyInit.runAsRoot=true")
	}
	if j.Anchors == "" {
		return errors.New("there are no trust anchors")
	}
	return nil
}

// likeTheProxy warns of containers that run as the proxy's user: what that user
// sends is taken for the proxy's, and goes past it.
func (j *job) likeTheProxy() (warnings []string) {
	spec := &j.Pod.Spec
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		var user *int64
		if s := spec.SecurityContext; s != nil {
			user = s.RunAsUser
		}
		if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
			user = s.RunAsUser
		}
		if user != nil && *user == j.v.Proxy.UID {
			warnings = append(warnings, fmt.Sprintf("what container %.63s sends does not go through the proxy: both run as user %d; "+
				"set another runAsUser, or annotate config.linkerd.io/proxy-uid", c.Name, *user))
		}
	}
	return warnings
}

// ownerKinds get a label linkerd.io/proxy-<kind>.
var ownerKinds = []string{"deployment", "replicationcontroller", "replicaset", "job", "daemonset", "statefulset"}

func (j *job) labels() map[string]string {
	out := map[string]string{"linkerd.io/control-plane-ns": j.ControllerNamespace}
	if j.Namespace != "" { // a manifest may leave it to kubectl
		out["linkerd.io/workload-ns"] = j.Namespace
	}
	// A name may be longer than a label's value; such a label would make the
	// API server refuse the pod.
	// Linkerd's webhook labels no pod of a CronJob; its command line does.
	labelled := slices.Contains(ownerKinds, j.Owner.Kind) || j.Template != nil && j.Owner.Kind == "cronjob"
	if labelled && len(validation.IsValidLabelValue(j.Owner.Name)) == 0 {
		out["linkerd.io/proxy-"+j.Owner.Kind] = j.Owner.Name
	}
	return out
}

// The proxy's own volumes.
const (
	identityVolume = "linkerd-identity-end-entity"
	identityDir    = "/var/run/linkerd/identity/end-entity"
	podInfoVolume  = "linkerd-podinfo"
	podInfoDir     = "/var/run/linkerd/podinfo"
	tokenVolume    = "linkerd-identity-token"
	tokenDir       = "/var/run/secrets/tokens"
	tokenSeconds   = 86400 // a day: the kubelet renews it after 80 %
)

func (j *job) volumes() []corev1.Volume {
	out := []corev1.Volume{{
		Name:         identityVolume,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
	}}
	if j.v.Proxy.Tracing.Enabled {
		field := func(name string) corev1.DownwardAPIVolumeFile {
			return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata." + name}}
		}
		out = append(out, corev1.Volume{Name: podInfoVolume, VolumeSource: corev1.VolumeSource{
			DownwardAPI: &corev1.DownwardAPIVolumeSource{
				Items: []corev1.DownwardAPIVolumeFile{field("labels"), field("annotations")},
			},
		}})
	}
	if j.v.Identity.ServiceAccountTokenProjection {
		out = append(out, corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
				ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
					Audience: "identity.l5d.io", ExpirationSeconds: new(int64(tokenSeconds)), Path: tokenVolume,
				},
			}}},
		}})
	}
	return out
}

//go:fix inline
func ptr[T any](v T) *T { return new(v) }
