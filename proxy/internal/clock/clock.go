// Package clock has a time for what is asked with each request: it costs half of
// what the time of day does, and only tells how long something took.
package clock

import "time"

var start = time.Now()

// Now is the time since an arbitrary moment of this process; it never goes back.
func Now() time.Duration { return time.Since(start) }
