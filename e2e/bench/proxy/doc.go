// Package proxy measures what a request costs in weft-proxy, beside other
// proxies that do the same work on the same core in the same seconds: one hop of
// HTTP/1.1, and two hops with mutual TLS between them, and how much later answers
// are than without a proxy. Other work on the machine slows all alike, so the ratios
// are what to compare between runs. It also looks at the memory of two proxies, at
// rest, at work and after a burst, and at what one slow backend of four does to the
// slowest requests. Verdicts on the budgets come last, those that are not kept twice.
// Its default run takes seconds and asserts only that every request was answered.
package proxy
