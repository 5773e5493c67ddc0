package resolve

import "github.com/weftmesh/weft/proxy/internal/change"

// A Filter changes a request or response, or answers in place of the backend.
// Exactly one field is set.
type Filter struct {
	Fail     *Fail
	Request  *change.Modify
	Response *change.Modify
	Redirect *change.Redirect
	Rewrite  *change.Rewrite
	Mirror   *Mirror
}

// Fail answers a share of the requests.
type Fail struct {
	Status  int  // of HTTP, or the gRPC code if GRPC
	GRPC    bool // answer as gRPC does
	Message string
	Ratio   float64 // of 1
}

// Mirror sends copies of a share of the requests somewhere, and forgets the answers.
type Mirror struct {
	To    Backend
	Ratio float64 // of 1
}
