// Package mesh keeps the README's promises: each test starts real processes on
// loopback and breaks something.
package mesh
