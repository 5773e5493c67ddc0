package token

import (
	"context"
	"fmt"

	authv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// API is the few questions that the Kubernetes API is asked. client-go's typed
// clients would bring every group of Kubernetes along, and with them most of
// the binary.
type API struct {
	authn, authz rest.Interface
	params       runtime.ParameterCodec
}

// Connect makes the clients; nothing is sent yet.
func Connect(cfg *rest.Config) (*API, error) {
	s := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(authv1.AddToScheme, authzv1.AddToScheme)
	if err := add.AddToScheme(s); err != nil {
		return nil, fmt.Errorf("learning the kinds of objects: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.APIPath = "/apis"
	cfg.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(s, serializer.NewCodecFactory(s)).WithoutConversion()
	group := func(gv schema.GroupVersion) (*rest.RESTClient, error) {
		one := rest.CopyConfig(cfg)
		one.GroupVersion = &gv
		return rest.RESTClientFor(one)
	}
	authn, err := group(authv1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("making the client for token reviews: %w", err)
	}
	authz, err := group(authzv1.SchemeGroupVersion)
	if err != nil {
		return nil, fmt.Errorf("making the client for access reviews: %w", err)
	}
	return &API{authn: authn, authz: authz, params: runtime.NewParameterCodec(s)}, nil
}

// Create asks for a token review.
func (a *API) Create(ctx context.Context, r *authv1.TokenReview, o metav1.CreateOptions) (*authv1.TokenReview, error) {
	got := new(authv1.TokenReview)
	err := a.authn.Post().Resource("tokenreviews").VersionedParams(&o, a.params).Body(r).Do(ctx).Into(got)
	return got, err
}

// Discovery is the document about the API server's tokens, in JSON.
func (a *API) Discovery(ctx context.Context) ([]byte, error) {
	return a.raw(ctx, "/.well-known/openid-configuration")
}

// JWKS is the set of keys that sign its tokens (RFC 7517).
func (a *API) JWKS(ctx context.Context) ([]byte, error) {
	return a.raw(ctx, "/openid/v1/jwks")
}

func (a *API) raw(ctx context.Context, path string) ([]byte, error) {
	b, err := a.authn.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	return b, nil
}

// MayReview asks whether this account may ask for token reviews.
func (a *API) MayReview(ctx context.Context) (bool, error) {
	got := new(authzv1.SelfSubjectAccessReview)
	err := a.authz.Post().Resource("selfsubjectaccessreviews").Body(&authzv1.SelfSubjectAccessReview{
		Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authzv1.ResourceAttributes{
			Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews",
		}},
	}).Do(ctx).Into(got)
	if err != nil {
		return false, fmt.Errorf("asking for an access review: %w", err)
	}
	return got.Status.Allowed, nil
}
