package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// openAPI is what routes are made of; versions 2 and 3 agree on it, but for the
// base path, which only 2 has.
type openAPI struct {
	Swagger  string              `json:"swagger"`
	OpenAPI  string              `json:"openapi"`
	BasePath string              `json:"basePath"`
	Paths    map[string]pathItem `json:"paths"`
}

type pathItem struct {
	Delete, Get, Head, Options, Patch, Post, Put *operation
}

type operation struct {
	Responses map[string]json.RawMessage `json:"responses"`
	Retryable *bool                      `json:"x-linkerd-retryable"`
	Timeout   string                     `json:"x-linkerd-timeout"`
}

// FromOpenAPI makes a profile of an OpenAPI description, YAML or JSON.
func FromOpenAPI(s Service, text []byte) (Profile, error) {
	var api openAPI
	if err := yaml.Unmarshal(text, &api); err != nil {
		return Profile{}, fmt.Errorf("reading the description: %w", err)
	}
	if api.Swagger == "" && api.OpenAPI == "" {
		return Profile{}, fmt.Errorf("this is no OpenAPI description: it has neither swagger nor openapi")
	}
	var routes []Route
	for _, relative := range slices.Sorted(maps.Keys(api.Paths)) {
		path := join(api.BasePath, relative)
		item := api.Paths[relative]
		for _, method := range []struct {
			name string
			op   *operation
		}{
			{http.MethodDelete, item.Delete},
			{http.MethodGet, item.Get},
			{http.MethodHead, item.Head},
			{http.MethodOptions, item.Options},
			{http.MethodPatch, item.Patch},
			{http.MethodPost, item.Post},
			{http.MethodPut, item.Put},
		} {
			if method.op == nil {
				continue
			}
			route, err := method.op.route(method.name, path)
			if err != nil {
				return Profile{}, err
			}
			routes = append(routes, route)
		}
	}
	return s.profile(routes), nil
}

func (o *operation) route(method, path string) (Route, error) {
	r := Route{
		Name:        method + " " + path,
		Condition:   Condition{Method: method, PathRegex: pathRegex(path)},
		IsRetryable: o.Retryable != nil && *o.Retryable,
		Timeout:     o.Timeout,
	}
	if r.Timeout != "" {
		if d, err := time.ParseDuration(r.Timeout); err != nil || d < 0 {
			return Route{}, fmt.Errorf("%s: x-linkerd-timeout is %q, which is no duration such as 300ms", r.Name, r.Timeout)
		}
	}
	var statuses []int
	for text := range o.Responses {
		n, err := strconv.Atoi(text) // "default" and "4XX" are no status
		if err == nil && n >= 100 && n <= 599 && !slices.Contains(statuses, n) && !strings.HasPrefix(text, "+") {
			statuses = append(statuses, n)
		}
	}
	slices.Sort(statuses)
	for _, n := range statuses {
		r.ResponseClasses = append(r.ResponseClasses, ResponseClass{
			Condition: StatusCondition{Statuses{n, n}}, IsFailure: n >= http.StatusInternalServerError,
		})
	}
	return r, nil
}
