package classify

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

func TestSuccess(t *testing.T) {
	for _, tt := range []struct {
		http   int
		grpc   bool
		status string
		want   bool
	}{
		{200, false, "", true},
		{404, false, "", true},
		{429, false, "", true},
		{500, false, "", false},
		{503, false, "13", false},
		{200, true, "0", true},
		{200, true, "", true}, // none is UNKNOWN by name, but no failure
		{200, true, "5", true},
		{200, true, "1", true},
		{200, true, "8", true},
		{200, true, "12", true},
		{200, true, "2", false},
		{200, true, "4", false},
		{200, true, "7", false},
		{200, true, "13", false},
		{200, true, "14", false},
		{200, true, "15", false},
		{503, true, "", false},
	} {
		if got := Success(tt.http, tt.grpc, tt.status); got != tt.want {
			t.Errorf("Success(%d, %v, %q) = %v", tt.http, tt.grpc, tt.status, got)
		}
	}
}

func TestClasses(t *testing.T) {
	between := func(low, high int) Match { return Match{Low: low, High: high} }
	teapot := between(418, 418)
	c := Classes{
		{Match: teapot, Failure: true},
		{Match: Match{All: []Match{between(400, 499), {Not: &teapot}}}, Failure: false},
		{Match: Match{Any: []Match{between(501, 501), between(302, 302)}}, Failure: true},
		{Match: between(502, 502), Failure: false},
		{Match: Match{Any: []Match{}}, Failure: true}, // nothing is one of none
	}
	for status, want := range map[int]bool{418: false, 404: true, 501: false, 302: false, 502: true, 500: false, 200: true} {
		if got := c.Success(status, ""); got != want {
			t.Errorf("%d: %v", status, got)
		}
	}
	if c.Success(200, "13") || !c.Success(404, "13") {
		t.Error("grpc-status counts where no class does, and only there")
	}
}

func TestHint(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	none := time.Duration(-1)
	for _, tt := range []struct {
		name, header, value string
		status              int
		want                time.Duration
	}{
		{"seconds", "Retry-After", "7", 503, 7 * time.Second},
		{"of a 429", "Retry-After", "7", 429, 7 * time.Second},
		{"not of a 500", "Retry-After", "7", 500, none},
		{"not of a 200", "Retry-After", "7", 200, none},
		{"none", "Retry-After", "", 503, none},
		{"zero", "Retry-After", "0", 503, 0},
		{"white space", "Retry-After", "  12\t", 503, 12 * time.Second},
		{"only white space", "Retry-After", "  ", 503, none},
		{"below zero", "Retry-After", "-1", 503, none},
		{"a fraction", "Retry-After", "1.5", 503, none},
		{"a sign", "Retry-After", "+5", 503, none},
		{"words", "Retry-After", "soon", 503, none},
		{"more than a clock holds", "Retry-After", "99999999999999999999", 503, time.Duration(1<<33-1) * time.Second},
		{"a date", "Retry-After", "Mon, 30 Nov 2026 12:01:00 GMT", 503, time.Minute},
		{"an old form of date", "Retry-After", "Monday, 30-Nov-26 12:00:30 GMT", 503, 30 * time.Second},
		{"an older form", "Retry-After", "Mon Nov 30 12:00:05 2026", 503, 5 * time.Second},
		{"a date that has passed", "Retry-After", "Mon, 30 Nov 2026 11:00:00 GMT", 503, 0},
		{"half a date", "Retry-After", "Mon, 30 Nov", 503, none},
		{"pushback", "grpc-retry-pushback-ms", "250", 200, 250 * time.Millisecond},
		{"pushback of nothing", "grpc-retry-pushback-ms", "0", 200, 0},
		{"do not retry", "grpc-retry-pushback-ms", "-1", 200, none},
		{"pushback in words", "grpc-retry-pushback-ms", "x", 200, none},
		{"more than 32 bits", "grpc-retry-pushback-ms", "2147483648", 200, none},
	} {
		got, ok := Hint(tt.status, http.Header{http.CanonicalHeaderKey(tt.header): {tt.value}}, now)
		if !ok {
			got = none
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPenalized(t *testing.T) {
	for _, tt := range []struct {
		status int
		grpc   string
		want   bool
	}{
		{200, "", false},
		{404, "", false},
		{429, "", true},
		{500, "", true},
		{503, "", true},
		{200, "0", false},
		{200, "5", false},
		{200, "7", false},
		{200, "8", true},
		{200, "14", true},
		{200, "2", true},
		{200, "4", true},
		{200, "13", true},
		{200, "15", true},
	} {
		if got := Penalized(tt.status, tt.grpc); got != tt.want {
			t.Errorf("Penalized(%d, %q) = %v", tt.status, tt.grpc, got)
		}
	}
}

func FuzzHint(f *testing.F) {
	f.Add("120", 503)
	f.Add("Mon, 30 Nov 2026 12:01:00 GMT", 429)
	f.Fuzz(func(t *testing.T, value string, status int) {
		d, ok := Hint(status, http.Header{"Retry-After": {value}, "Grpc-Retry-Pushback-Ms": {value}}, time.Unix(1e9, 0))
		if ok && d < 0 {
			t.Errorf("%q: %v", value, d)
		}
	})
}

func ExampleSuccess() {
	fmt.Println(Success(200, true, "14"), Success(404, false, ""))
	// Output: false true
}
