package shape

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The routes of both groups, as their CRDs write them. What has a default in a
// CRD is a pointer or a list that may be nil: absent is not the same as empty.
type (
	// HTTPRoute is an HTTPRoute of either group.
	HTTPRoute = routeOf[httpMatch]
	// GRPCRoute routes calls by service and method.
	GRPCRoute = routeOf[grpcMatch]
	// PlainRoute is a TLSRoute or TCPRoute, which match nothing in their rules.
	PlainRoute = routeOf[struct{}]
)

type routeOf[M any] struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ParentRefs []parentRef `json:"parentRefs"`
		Hostnames  []string    `json:"hostnames"`
		Rules      []ruleOf[M] `json:"rules"`
	} `json:"spec"`
	Status Status `json:"status"`
}

type parentRef struct {
	Group       *string `json:"group"`
	Kind        *string `json:"kind"`
	Namespace   string  `json:"namespace"`
	Name        string  `json:"name"`
	SectionName string  `json:"sectionName"`
	Port        int64   `json:"port"`
}

type ruleOf[M any] struct {
	Name        string       `json:"name"`
	Matches     []M          `json:"matches"`
	Filters     []filter     `json:"filters"`
	BackendRefs []backendRef `json:"backendRefs"`
	Timeouts    struct {
		Request        string `json:"request"`
		BackendRequest string `json:"backendRequest"`
	} `json:"timeouts"`
	SessionPersistence *session `json:"sessionPersistence"`
}

type session struct {
	SessionName     string  `json:"sessionName"`
	AbsoluteTimeout string  `json:"absoluteTimeout"`
	IdleTimeout     string  `json:"idleTimeout"`
	Type            *string `json:"type"`
	CookieConfig    struct {
		LifetimeType *string `json:"lifetimeType"`
	} `json:"cookieConfig"`
}

type httpMatch struct {
	Path *struct {
		Type  *string `json:"type"`
		Value *string `json:"value"`
	} `json:"path"`
	Headers     []typedValue `json:"headers"`
	QueryParams []typedValue `json:"queryParams"`
	Method      string       `json:"method"`
}

type grpcMatch struct {
	Method *struct {
		Type    *string `json:"type"`
		Service string  `json:"service"`
		Method  string  `json:"method"`
	} `json:"method"`
	Headers []typedValue `json:"headers"`
}

type typedValue struct {
	Type  *string `json:"type"`
	Name  string  `json:"name"`
	Value string  `json:"value"`
}

type backendRef struct {
	Group     *string  `json:"group"`
	Kind      *string  `json:"kind"`
	Namespace *string  `json:"namespace"`
	Name      string   `json:"name"`
	Port      int64    `json:"port"`
	Weight    *int64   `json:"weight"`
	Filters   []filter `json:"filters"`
}

type filter struct {
	Type            string          `json:"type"`
	RequestHeaders  *headerModifier `json:"requestHeaderModifier"`
	ResponseHeaders *headerModifier `json:"responseHeaderModifier"`
	Redirect        *struct {
		Scheme     string        `json:"scheme"`
		Hostname   string        `json:"hostname"`
		Path       *pathModifier `json:"path"`
		Port       int64         `json:"port"`
		StatusCode *int64        `json:"statusCode"`
	} `json:"requestRedirect"`
	Rewrite *struct {
		Hostname string        `json:"hostname"`
		Path     *pathModifier `json:"path"`
	} `json:"urlRewrite"`
	Mirror *struct {
		BackendRef backendRef `json:"backendRef"`
		Percent    *int64     `json:"percent"`
		Fraction   *struct {
			Numerator   int64  `json:"numerator"`
			Denominator *int64 `json:"denominator"`
		} `json:"fraction"`
	} `json:"requestMirror"`
	Extension *Ref `json:"extensionRef"`
}

type headerModifier struct {
	Set    []typedValue `json:"set"`
	Add    []typedValue `json:"add"`
	Remove []string     `json:"remove"`
}

type pathModifier struct {
	Type        string `json:"type"`
	FullPath    string `json:"replaceFullPath"`
	PrefixMatch string `json:"replacePrefixMatch"`
}

// ReferenceGrant lets routes of other namespaces refer to objects of its own.
type ReferenceGrant struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		From []Ref `json:"from"`
		To   []Ref `json:"to"`
	} `json:"spec"`
}
