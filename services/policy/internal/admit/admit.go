// Package admit is the admission webhook of the policy kinds and of
// ServiceProfiles: it reads reviews, has package rule judge the object, and
// answers with what is wrong. It decides nothing itself, changes no object, and
// needs neither the bus nor Kubernetes.
package admit

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weftmesh/weft/services/kit/hook"
	"github.com/weftmesh/weft/services/kit/obs"
	"github.com/weftmesh/weft/services/policy/internal/admit/rule"
)

// The results that are counted.
const (
	admitted = "admitted"
	denied   = "denied"
	unread   = "unread"  // admitted without being judged
	foreign  = "foreign" // admitted, being none of our kinds
)

// Webhook answers reviews.
type Webhook struct {
	reviews *prometheus.CounterVec
	bodies  *hook.Bodies
}

// New makes a webhook. Its two handlers share bounds and metrics.
func New(reg prometheus.Registerer) *Webhook {
	w := &Webhook{bodies: hook.NewBodies(), reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_policy_reviews_total",
		Help: "Objects that were reviewed, by kind and what became of them: admitted, denied, unread (of another project's kind, and admitted) or foreign (none of our kinds, and admitted).",
	}, []string{"kind", "result"})}
	reg.MustRegister(w.reviews)
	return w
}

// Policies is the handler of policies and routes. It behaves as Linkerd's policy
// controller: POST / only, and a review that can't be read is answered, not
// failed. Source: spec/identity-injector-mirror.md §4.
func (w *Webhook) Policies() http.Handler {
	return w.handler(func(out http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/" {
			http.NotFound(out, r)
			return
		}
		body, done, err := w.bodies.Read(out, r)
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		defer done()
		in, err := read(body)
		if err != nil {
			slog.WarnContext(r.Context(), "review cannot be read", obs.Error(err))
			in.TypeMeta = current()
			write(out, in.answer(refuse("", err.Error())))
			return
		}
		write(out, in.answer(w.judge(r.Context(), in.Request)))
	})
}

// Profiles is the handler of ServiceProfiles. It behaves as Linkerd's
// sp-validator: any path, an empty answer to an empty request, and status 400 for
// a review that can't be read.
func (w *Webhook) Profiles() http.Handler {
	return w.handler(func(out http.ResponseWriter, r *http.Request) {
		body, done, err := w.bodies.Read(out, r)
		if err != nil {
			http.Error(out, err.Error(), http.StatusInternalServerError)
			return
		}
		defer done()
		if len(body) == 0 {
			return
		}
		in, err := read(body)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		write(out, in.answer(w.judge(r.Context(), in.Request)))
	})
}

// handler keeps one strange object from ending the others' requests.
func (*Webhook) handler(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				slog.ErrorContext(r.Context(), "handling a review panicked", "panic", p)
				http.Error(out, "internal error", http.StatusInternalServerError)
			}
		}()
		serve(out, r)
	})
}

func (w *Webhook) judge(ctx context.Context, r *request) *response {
	if r.Operation != "" && r.Operation != "CREATE" && r.Operation != "UPDATE" {
		return admit(r.UID)
	}
	v := rule.Judge(rule.Object{Group: r.Kind.Group, Kind: r.Kind.Kind, Namespace: r.Namespace, Raw: r.Object})
	log := slog.With(obs.Object(r.Namespace+"/"+r.Name), slog.String("kind", v.Kind))
	switch {
	case v.Kind == "":
		w.reviews.WithLabelValues("", foreign).Inc()
	case len(v.Problems) > 0:
		text := rule.Text(v.Problems)
		log.InfoContext(ctx, "object refused", obs.Reason(text))
		w.reviews.WithLabelValues(v.Kind, denied).Inc()
		return refuse(r.UID, text)
	case v.Unread != nil:
		log.WarnContext(ctx, "object admitted unread", obs.Error(v.Unread))
		w.reviews.WithLabelValues(v.Kind, unread).Inc()
	default:
		log.DebugContext(ctx, "object admitted")
		w.reviews.WithLabelValues(v.Kind, admitted).Inc()
	}
	return admit(r.UID)
}

func write(out http.ResponseWriter, answer *review) {
	b, err := json.Marshal(answer)
	if err != nil {
		http.Error(out, "writing the answer", http.StatusInternalServerError)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	// A client that went away has nobody to tell.
	_, _ = out.Write(b)
}
