// Package soak lets mixed traffic run through two proxies for as long as it is
// told, while endpoints, policies and certificates change and the control plane
// restarts. Every answer is compared with what was sent; afterwards the proxies
// must hold no more than before.
//
//	make soak FOR=10m     # the tests run it for a few seconds
package soak
