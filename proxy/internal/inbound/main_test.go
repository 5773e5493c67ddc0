package inbound

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that tests have left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
