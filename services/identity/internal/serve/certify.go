// Package serve answers Certify: it calls the rooms that decide, in Linkerd's
// order, and turns what they say into gRPC codes. The order is part of the
// API: a bad request is told so before its token is looked at.
package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weftmesh/weft/services/identity/internal/events"
	"github.com/weftmesh/weft/services/identity/internal/issue"
	"github.com/weftmesh/weft/services/identity/internal/token"
	"github.com/weftmesh/weft/services/kit/obs"
)

// reviewer says whom a token stands for.
type reviewer interface {
	Review(ctx context.Context, token []byte) (user string, err error)
}

// issuers has the issuer in use, nil when there is none yet.
type issuers interface{ Current() *issue.Issuer }

// Config is what a Server needs.
type Config struct {
	Domain   issue.Domain
	Validity issue.Validity
	Issuers  issuers
	Tokens   reviewer
	Limits   Limits
	Now      func() time.Time
	// Record takes what happened for people to see. It must not block; nil means
	// that nobody is told.
	Record func(events.Event)
}

// Server is the Identity service.
type Server struct {
	pb.UnimplementedIdentityServer
	cfg     Config
	gate    *gate
	answers *prometheus.CounterVec
}

// New makes a server whose counters are in reg.
func New(cfg Config, reg prometheus.Registerer) *Server {
	if cfg.Record == nil {
		cfg.Record = func(events.Event) {}
	}
	s := &Server{cfg: cfg, gate: newGate(cfg.Limits, reg), answers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weft_identity_certify_answers_total",
		Help: "Answers to Certify, by gRPC code.",
	}, []string{"code"})}
	reg.MustRegister(s.answers)
	return s
}

// Certify implements pb.IdentityServer.
func (s *Server) Certify(ctx context.Context, req *pb.CertifyRequest) (*pb.CertifyResponse, error) {
	resp, err := s.certify(ctx, req)
	s.answers.WithLabelValues(status.Code(err).String()).Inc()
	return resp, err
}

func (s *Server) certify(ctx context.Context, req *pb.CertifyRequest) (*pb.CertifyResponse, error) {
	by := s.cfg.Issuers.Current()
	if by == nil {
		return nil, status.Error(codes.Unavailable, "not ready: no issuer is loaded")
	}
	name := req.GetIdentity()
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "missing identity")
	}
	if len(req.GetToken()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "missing token")
	}
	csr, err := issue.ParseRequest(req.GetCertificateSigningRequest())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "certificate signing request: %s", err)
	}
	if err := by.Verify(s.cfg.Now()); err != nil {
		slog.ErrorContext(ctx, "issuer no longer verifies", obs.Error(err))
		s.cfg.Record(events.Event{
			About: Deployment(s.cfg.Domain.ControllerNamespace), Reason: events.IssuerValidationFailed, Warning: true,
			Message: "Identity issuer cannot be verified, no certificates are issued: " + err.Error(),
		})
		// Unknown, not Unavailable: Linkerd returns the bare error here.
		return nil, status.Error(codes.Unknown, err.Error())
	}
	if err := issue.CheckRequest(csr, name); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if err := s.gate.enter(ctx, name); err != nil {
		return nil, err
	}
	account, err := s.entitled(ctx, req.GetToken(), name)
	if err != nil {
		return nil, err
	}
	serial, err := issue.Serial()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	// The wait may have been long: the time and the issuer are today's.
	cert, err := issue.Sign(issue.Order{
		Request: csr, URI: s.cfg.Domain.SPIFFE(account), Validity: s.cfg.Validity, Now: s.cfg.Now(), Serial: serial,
	}, s.cfg.Issuers.Current())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	sum := sha256.Sum256(cert.Leaf.Raw)
	digest := hex.EncodeToString(sum[:])
	slog.InfoContext(ctx, "certificate issued", obs.Identity(name),
		slog.Time("not_after", cert.Leaf.NotAfter), slog.String("sha256", digest))
	s.cfg.Record(events.Event{
		About:  events.Object{APIVersion: "v1", Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name},
		Reason: events.IssuedLeafCertificate, Routine: true,
		Message: fmt.Sprintf("Certificate for %s until %s, sha256 %s", name, cert.Leaf.NotAfter.Format(time.RFC3339), digest),
	})
	return &pb.CertifyResponse{
		LeafCertificate:          cert.Leaf.Raw,
		IntermediateCertificates: cert.Between,
		ValidUntil:               timestamppb.New(cert.Leaf.NotAfter),
	}, nil
}

// Deployment is what events about the issuer are about.
func Deployment(namespace string) events.Object {
	return events.Object{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: "linkerd-identity"}
}

// entitled gives the token's owner if it is the one called name.
func (s *Server) entitled(ctx context.Context, secret []byte, name string) (issue.Account, error) {
	user, err := s.cfg.Tokens.Review(ctx, secret)
	switch {
	case errors.Is(err, token.ErrInvalid):
		return issue.Account{}, status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, token.ErrUnauthenticated):
		return issue.Account{}, status.Error(codes.FailedPrecondition, err.Error())
	case ctx.Err() != nil:
		return issue.Account{}, status.FromContextError(ctx.Err()).Err()
	case err != nil:
		slog.WarnContext(ctx, "token could not be checked", obs.Error(err))
		return issue.Account{}, status.Error(codes.Internal, "token could not be checked")
	}
	account, err := issue.ParseAccount(user)
	if err != nil {
		return issue.Account{}, status.Error(codes.InvalidArgument, err.Error())
	}
	if s.cfg.Domain.Identity(account) != name {
		return issue.Account{}, status.Error(codes.FailedPrecondition, "requested identity is not the token's")
	}
	return account, nil
}
