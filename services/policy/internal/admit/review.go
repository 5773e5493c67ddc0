package admit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// The AdmissionReview of admission.k8s.io, as far as it is read and written here.
// v1 and v1beta1 have the same form. This module has no Kubernetes libraries: it
// needs these few fields of them.
type review struct {
	TypeMeta
	Request  *request  `json:"request,omitempty"`
	Response *response `json:"response,omitempty"`
}

// TypeMeta says what a document is.
type TypeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

type request struct {
	UID  string `json:"uid"`
	Kind struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
	} `json:"kind"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Operation string          `json:"operation"`
	Object    json.RawMessage `json:"object"`
}

type response struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
}

type status struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Reason  string `json:"reason"`
	Code    int    `json:"code"`
}

func current() TypeMeta {
	return TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}
}

// read decodes a review; what it returns is never nil.
func read(body []byte) (*review, error) {
	in := &review{}
	if err := json.Unmarshal(body, in); err != nil {
		return in, fmt.Errorf("the review is not JSON of an AdmissionReview: %w", err)
	}
	switch {
	case in.APIVersion != "admission.k8s.io/v1" && in.APIVersion != "admission.k8s.io/v1beta1", in.Kind != "AdmissionReview":
		return in, errors.New("not an AdmissionReview of admission.k8s.io/v1 or v1beta1")
	case in.Request == nil || in.Request.UID == "":
		return in, errors.New("the review has no request or no uid")
	}
	return in, nil
}

// answer is the review that goes back; it has the version of the one that came.
func (r *review) answer(what *response) *review {
	return &review{TypeMeta: r.TypeMeta, Response: what}
}

func admit(uid string) *response { return &response{UID: uid, Allowed: true} }

// refuse says to whoever wrote the object what is wrong with it.
func refuse(uid, text string) *response {
	return &response{UID: uid, Status: &status{
		Status: "Failure", Message: text, Reason: "Invalid", Code: http.StatusBadRequest,
	}}
}
