package change

import routepb "github.com/linkerd/linkerd2-proxy-api/go/http_route"

// RatioOf is a share of 1; no ratio, or one over nothing, is always.
func RatioOf(r *routepb.Ratio) float64 {
	if r.GetDenominator() == 0 {
		return 1
	}
	return min(1, float64(r.GetNumerator())/float64(r.GetDenominator()))
}
