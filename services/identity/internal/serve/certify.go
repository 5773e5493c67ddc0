// Package serve answers Certify: it calls the rooms that decide, in Linkerd's
// order, and turns what they say into gRPC codes. The order is part of the
// API: a bad request is told so before its token is looked at.
package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	pb "github.com/linkerd/linkerd2-proxy-api/go/identity"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

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
	Now      func() time.Time
}

// Server is the Identity service.
type Server struct {
	pb.UnimplementedIdentityServer
	cfg     Config
	answers *prometheus.CounterVec
}

// New makes a server whose counters are in reg.
func New(cfg Config, reg prometheus.Registerer) *Server {
	s := &Server{cfg: cfg, answers: prometheus.NewCounterVec(prometheus.CounterOpts{
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
	now := s.cfg.Now()
	if err := by.Verify(now); err != nil {
		slog.ErrorContext(ctx, "issuer no longer verifies", obs.Error(err))
		// Unknown, not Unavailable: Linkerd returns the bare error here.
		return nil, status.Error(codes.Unknown, err.Error())
	}
	if err := issue.CheckRequest(csr, name); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if err := s.entitled(ctx, req.GetToken(), name); err != nil {
		return nil, err
	}
	serial, err := issue.Serial()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	cert, err := issue.Sign(csr, by, s.cfg.Validity, now, serial)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	sum := sha256.Sum256(cert.Leaf.Raw)
	slog.InfoContext(ctx, "certificate issued", obs.Identity(name),
		slog.Time("not_after", cert.Leaf.NotAfter), slog.String("sha256", hex.EncodeToString(sum[:])))
	return &pb.CertifyResponse{
		LeafCertificate:          cert.Leaf.Raw,
		IntermediateCertificates: cert.Between,
		ValidUntil:               timestamppb.New(cert.Leaf.NotAfter),
	}, nil
}

// entitled says whether the token's owner is the one called name.
func (s *Server) entitled(ctx context.Context, secret []byte, name string) error {
	user, err := s.cfg.Tokens.Review(ctx, secret)
	switch {
	case errors.Is(err, token.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, token.ErrUnauthenticated):
		return status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		slog.WarnContext(ctx, "token could not be checked", obs.Error(err))
		return status.Error(codes.Internal, "token could not be checked")
	}
	account, err := issue.ParseAccount(user)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if s.cfg.Domain.Identity(account) != name {
		return status.Error(codes.FailedPrecondition, "requested identity is not the token's")
	}
	return nil
}
