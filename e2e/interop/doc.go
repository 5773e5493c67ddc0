// Package interop has gRPC's own interoperability tests run through two proxies.
package interop
