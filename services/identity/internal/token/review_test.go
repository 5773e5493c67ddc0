package token_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weftmesh/weft/services/identity/internal/token"
)

// answers gives one status for each call, and remembers the audiences asked.
type answers struct {
	status []authv1.TokenReviewStatus
	err    error
	asked  [][]string
}

func (a *answers) Create(_ context.Context, r *authv1.TokenReview, _ metav1.CreateOptions) (*authv1.TokenReview, error) {
	a.asked = append(a.asked, r.Spec.Audiences)
	if a.err != nil {
		return nil, a.err
	}
	out := r.DeepCopy()
	out.Status = a.status[len(a.asked)-1]
	return out, nil
}

func TestKubeReview(t *testing.T) {
	yes := authv1.TokenReviewStatus{Authenticated: true, User: authv1.UserInfo{Username: user}}
	wrongAudience := authv1.TokenReviewStatus{Error: `token audiences ["https://api"] is invalid for the target audiences ["identity.l5d.io"]`}
	ours := []string{token.Audience}
	tests := []struct {
		name  string
		in    []authv1.TokenReviewStatus
		asked [][]string
		err   error
	}{
		{"ours", []authv1.TokenReviewStatus{yes}, [][]string{ours}, nil},
		{"old-style token", []authv1.TokenReviewStatus{wrongAudience, yes}, [][]string{ours, nil}, nil},
		{"wrong both times", []authv1.TokenReviewStatus{wrongAudience, wrongAudience}, [][]string{ours, nil}, token.ErrInvalid},
		{"refused", []authv1.TokenReviewStatus{{Error: "invalid bearer token"}}, [][]string{ours}, token.ErrInvalid},
		{"nobody", []authv1.TokenReviewStatus{{}}, [][]string{ours}, token.ErrUnauthenticated},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			api := &answers{status: tt.in}
			got, err := (&token.Kube{Reviews: api}).Review(t.Context(), []byte("secret"))
			if !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) || (err == nil && got != user) {
				t.Errorf("Review() = %q, %v, want error %v", got, err, tt.err)
			}
			if diff := cmp.Diff(tt.asked, api.asked); diff != "" {
				t.Errorf("audiences (-want +got):\n%s", diff)
			}
		})
	}
}

func TestKubeReviewKeepsTheTokenSecret(t *testing.T) {
	for _, cause := range []error{
		apierrors.NewBadRequest("cannot decode secret-token"),
		errors.New("post secret-token: refused"),
	} {
		_, err := (&token.Kube{Reviews: &answers{err: cause}}).Review(t.Context(), []byte("secret-token"))
		if err == nil || strings.Contains(err.Error(), "secret-token") {
			t.Errorf("Review() = %v, want an error without the token", err)
		}
		if errors.Is(err, token.ErrInvalid) || errors.Is(err, token.ErrUnauthenticated) {
			t.Errorf("Review() = %v, want an error of ours, not of the token", err)
		}
	}
}
