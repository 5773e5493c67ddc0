package serve

import (
	"encoding/json"
	"log/slog"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/weftmesh/weft/services/kit/hook"
	"github.com/weftmesh/weft/services/kit/obs"
)

// Handler answers reviews on every path.
func Handler(a *Admitter) http.Handler {
	bodies := hook.NewBodies()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			// One strange object must not end the others' requests.
			if p := recover(); p != nil {
				slog.ErrorContext(r.Context(), "handling a review panicked", "panic", p)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}
		}()
		review(w, r, a, bodies)
	})
}

func review(w http.ResponseWriter, r *http.Request, a *Admitter, bodies *hook.Bodies) {
	body, done, err := bodies.Read(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer done()
	if len(body) == 0 {
		return // an empty 200, as Linkerd answers it
	}
	// v1 and v1beta1 have the same form; the answer repeats what came.
	var in admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, "review is not JSON of an AdmissionReview", http.StatusBadRequest)
		return
	}
	switch {
	case in.APIVersion != "admission.k8s.io/v1" && in.APIVersion != "admission.k8s.io/v1beta1", in.Kind != "AdmissionReview":
		http.Error(w, "not an AdmissionReview of admission.k8s.io/v1 or v1beta1", http.StatusBadRequest)
		return
	case in.Request == nil || in.Request.UID == "":
		http.Error(w, "review has no request or no uid", http.StatusBadRequest)
		return
	}
	resp, err := a.Admit(r.Context(), in.Request)
	if err != nil {
		slog.ErrorContext(r.Context(), "admission failed, the object is rejected",
			object(in.Request, in.Request.Name), obs.Error(err))
		resp = refuse(in.Request, err)
	}
	out := admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: resp}
	b, err := json.Marshal(out)
	if err != nil {
		http.Error(w, "writing the answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A client that went away has nobody to tell.
	_, _ = w.Write(b)
}
