// Package change is what a route does to requests and responses: it changes headers,
// sends the client elsewhere, and says another place. Both directions use it, so that
// they read the control plane's messages alike. It is pure: messages in, values out.
//
// What HTTP cannot carry is an error, and makes a policy invalid, as in Linkerd:
// leaving a change out could let through what it was to stop, and sending it could end
// a line early, or have each peer of HTTP/2 refuse each request.
package change
