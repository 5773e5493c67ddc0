package inbound

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that tests have left behind. Applications of net/http
// linger for half a second over what they refused to read.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}
