// Package cases runs files of black-box cases against Weft's real processes:
//
//	cd e2e && go test ./cases -args -cases ../../shared/cases
//
// Each case gets a watcher over a directory of its objects and the front-end
// that it asks, joined by a NATS server, and is asked over gRPC. The run prints
// passed and failed for each area. Cases that need objects which no table
// carries yet are run and counted too, but do not fail the run.
package cases
