package main

import (
	"crypto/fips140"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weftmesh/weft/services/kit/build"
)

// process registers what concerns the whole process, under the names that
// linkerd2-proxy has for it (spec/proxy.md §15.5).
func process(reg prometheus.Registerer) {
	started := time.Now()
	constant := func(name, help string, labels prometheus.Labels) prometheus.Collector {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
		g.Set(1)
		return g
	}
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		constant("proxy_build_info", "What was built; always 1.", prometheus.Labels{
			"version": build.Version(), "git_sha": build.Commit(), "vendor": "weft", "profile": "release", "date": date(),
		}),
		constant("rustls_info", "How TLS is done; always 1. The library is Go's: the name is that of linkerd2-proxy's.", prometheus.Labels{
			"tls_suites":    "TLS13_AES_128_GCM_SHA256,TLS13_AES_256_GCM_SHA384,TLS13_CHACHA20_POLY1305_SHA256",
			"tls_kx_groups": "X25519MLKEM768,X25519,secp256r1,secp384r1", "tls_rand": "crypto/rand", "tls_key_provider": "crypto/tls",
			"tls_fips": strconv.FormatBool(fips140.Enabled()),
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "process_uptime_seconds_total", Help: "Total time since the process started."},
			func() float64 { return time.Since(started).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_clock_time_seconds", Help: "The process's clock, as Unix time."},
			func() float64 { return float64(time.Now().UnixNano()) / 1e9 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "process_threads", Help: "Number of OS threads in the process."}, threads),
	)
}

// date is that of the commit; "" if the toolchain recorded none.
func date() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			return s.Value
		}
	}
	return ""
}

// threads counts them; 0 if the system does not say.
func threads() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "Threads:"); ok {
			f, _ := strconv.ParseFloat(strings.TrimSpace(n), 64)
			return f
		}
	}
	return 0
}
