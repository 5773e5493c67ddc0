package admin

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// metrics answers with everything that is counted, in Prometheus' text format. A
// family that cannot be gathered does not keep the others away.
func metrics(from prometheus.Gatherer) http.HandlerFunc {
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	return func(w http.ResponseWriter, r *http.Request) {
		families, err := from.Gather()
		if err != nil && len(families) == 0 {
			text(w, http.StatusInternalServerError, "gathering metrics: "+err.Error()+"\n")
			return
		}
		w.Header().Set("Content-Type", string(format))
		out := io.Writer(w)
		if gzips(r.Header.Values("Accept-Encoding")) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer func() { _ = z.Close() }() // a client that has gone needs no end
			out = z
		}
		w.WriteHeader(http.StatusOK)
		enc := expfmt.NewEncoder(out, format)
		for _, f := range families {
			if enc.Encode(f) != nil {
				return
			}
		}
		_, _ = io.WriteString(out, "# EOF\n")
	}
}

// gzips reports whether a client takes gzip.
func gzips(accept []string) bool {
	for _, line := range accept {
		for coding := range strings.SplitSeq(line, ",") {
			name, weight, _ := strings.Cut(strings.TrimSpace(coding), ";")
			if name = strings.TrimSpace(name); name != "gzip" && name != "x-gzip" && name != "*" {
				continue
			}
			q := strings.ReplaceAll(weight, " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}
