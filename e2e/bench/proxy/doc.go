// Package proxy measures what a request costs in weft-proxy, beside other
// proxies that do the same work on the same core in the same seconds: one hop of
// HTTP/1.1, and two hops with mutual TLS between them. Other work on the machine
// slows all alike, so the ratios are what to compare between runs. Its default
// run takes seconds and asserts only that every request was answered.
package proxy
