package demo

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// injector asks the webhook as the API server would.
type injector struct {
	url    string
	client *http.Client
}

func newInjector(addr, anchors string) (*injector, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(anchors)) {
		return nil, fmt.Errorf("reaching the injector: no certificate in the trust anchors")
	}
	return &injector{url: "https://" + addr + "/", client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool},
	}}}, nil
}

// inject returns the pod as it would be stored: with what the webhook patched in.
func (i *injector) inject(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	body, err := json.Marshal(pod)
	if err != nil {
		return nil, fmt.Errorf("injecting %s: %w", pod.Name, err)
	}
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(pod.Name), Operation: admissionv1.Create, Name: pod.Name, Namespace: pod.Namespace,
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:   runtime.RawExtension{Raw: body},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("injecting %s: %w", pod.Name, err)
	}
	answer, err := i.ask(ctx, review)
	if err != nil {
		return nil, fmt.Errorf("injecting %s: %w", pod.Name, err)
	}
	if !answer.Allowed {
		return nil, fmt.Errorf("injecting %s: refused: %s", pod.Name, answer.Result.Message)
	}
	if len(answer.Patch) == 0 {
		return nil, fmt.Errorf("injecting %s: the injector left it as it is; does its namespace say linkerd.io/inject: enabled?", pod.Name)
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		return nil, fmt.Errorf("injecting %s: reading the patch: %w", pod.Name, err)
	}
	if body, err = patch.Apply(body); err != nil {
		return nil, fmt.Errorf("injecting %s: applying the patch: %w", pod.Name, err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, fmt.Errorf("injecting %s: reading the result: %w", pod.Name, err)
	}
	return out, nil
}

func (i *injector) ask(ctx context.Context, review []byte) (*admissionv1.AdmissionResponse, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url, bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := i.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 10<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, body)
	}
	out := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	if out.Response == nil {
		return nil, fmt.Errorf("an answer without a response: %s", body)
	}
	return out.Response, nil
}
