// Package profile is `weft profile`: it writes ServiceProfiles to begin with,
// from a template, an OpenAPI description or a protobuf file. Making one is
// pure; only the command touches files and the cluster.
package profile

import (
	"regexp"
	"strings"
)

// Route is one route of a profile, as linkerd.io/v1alpha2 has it.
type Route struct {
	Name            string          `json:"name"`
	Condition       Condition       `json:"condition"`
	ResponseClasses []ResponseClass `json:"responseClasses,omitempty"`
	IsRetryable     bool            `json:"isRetryable,omitempty"`
	Timeout         string          `json:"timeout,omitempty"`
}

// Condition says which requests are a route's.
type Condition struct {
	Method    string `json:"method,omitempty"`
	PathRegex string `json:"pathRegex,omitempty"`
}

// ResponseClass says which responses are failures.
type ResponseClass struct {
	Condition StatusCondition `json:"condition"`
	IsFailure bool            `json:"isFailure,omitempty"`
}

// StatusCondition is a range of HTTP statuses.
type StatusCondition struct {
	Status Statuses `json:"status"`
}

// Statuses are those from Min to Max.
type Statuses struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Profile is a ServiceProfile.
type Profile struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
}

// Metadata names a profile.
type Metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Spec is what a profile says.
type Spec struct {
	Routes []Route `json:"routes"`
}

// Service is whom a profile is about.
type Service struct {
	Name, Namespace, ClusterDomain string
}

func (s Service) profileName() string { return s.Name + "." + s.Namespace + ".svc." + s.ClusterDomain }

func (s Service) profile(routes []Route) Profile {
	if routes == nil {
		routes = []Route{}
	}
	return Profile{
		APIVersion: "linkerd.io/v1alpha2", Kind: "ServiceProfile",
		Metadata: Metadata{Name: s.profileName(), Namespace: s.Namespace}, Spec: Spec{Routes: routes},
	}
}

// parameter is a part of an OpenAPI path that stands for any text, once the path
// has been quoted.
var parameter = regexp.MustCompile(`\\\{[^}]*\\\}`)

// pathRegex matches the requests of an OpenAPI path.
func pathRegex(path string) string {
	return parameter.ReplaceAllLiteralString(regexp.QuoteMeta(path), "[^/]*")
}

// join puts a path behind a base path.
func join(base, path string) string {
	return "/" + strings.TrimLeft(strings.TrimRight(base, "/")+"/"+strings.TrimLeft(path, "/"), "/")
}
