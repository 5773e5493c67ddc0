package token

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reviews is the one call of the Kubernetes client that is needed.
type reviews interface {
	Create(ctx context.Context, r *authv1.TokenReview, o metav1.CreateOptions) (*authv1.TokenReview, error)
}

// Kube authenticates tokens by asking the API server.
type Kube struct{ Reviews reviews }

// Review gives the user name that a token stands for.
func (k *Kube) Review(ctx context.Context, token []byte) (string, error) {
	status, err := k.ask(ctx, token, []string{Audience})
	if err != nil {
		return "", err
	}
	// A token that was not made for us may be an account's old-style token,
	// whose audience is the API server: Linkerd asks again without audience.
	if strings.Contains(status.Error, "token audiences") {
		if status, err = k.ask(ctx, token, nil); err != nil {
			return "", err
		}
	}
	if status.Error != "" {
		return "", refused{"the API server refused it"}
	}
	if !status.Authenticated {
		return "", ErrUnauthenticated
	}
	return status.User.Username, nil
}

func (k *Kube) ask(ctx context.Context, token []byte, audiences []string) (authv1.TokenReviewStatus, error) {
	got, err := k.Reviews.Create(ctx, &authv1.TokenReview{
		Spec: authv1.TokenReviewSpec{Token: string(token), Audiences: audiences},
	}, metav1.CreateOptions{})
	if err == nil {
		return got.Status, nil
	}
	// An API server's error can quote the object it was sent, and with it the
	// token: only the kind of error goes on.
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		if away(status.Status().Code) {
			return authv1.TokenReviewStatus{}, fmt.Errorf("asking for a token review: %w: %s", ErrUnreachable, apierrors.ReasonForError(err))
		}
		return authv1.TokenReviewStatus{}, fmt.Errorf("asking for a token review: %s", apierrors.ReasonForError(err))
	}
	if cause := ctx.Err(); cause != nil {
		return authv1.TokenReviewStatus{}, fmt.Errorf("asking for a token review: %w", cause)
	}
	return authv1.TokenReviewStatus{}, fmt.Errorf("asking for a token review: %w: no answer", ErrUnreachable)
}

// away tells the answers of an API server, or of what stands before it, that
// cannot do its work from those of one that does not want to.
func away(code int32) bool {
	return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout
}
