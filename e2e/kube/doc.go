// Package kube runs Weft's processes against a real Kubernetes API server: etcd
// and kube-apiserver on loopback, without nodes. What a test's fakes take for
// granted (compaction, watch bookmarks, streamed lists, RBAC, tokens, admission)
// is real here.
//
//	cd e2e && go test ./kube
//
// The tests are skipped where there is no etcd or no hyperkube. WEFT_KUBE_BIN
// names hyperkube's directory; without it, .bin/kube is looked at, which
// `make clusterbins` fills.
package kube
