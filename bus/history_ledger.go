package bus

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// A checkpoint an hour makes an answer read one checkpoint's chunk and an hour
	// of the log at most; the sum of a day of them is 240 MB at 150,000 pods.
	checkpointEvery = time.Hour
	// checkpointShare of the age: a short history has some of them all the same.
	checkpointShare = 4
	// stalledAt is how many messages a stream may not have taken yet: between two
	// looks there are some beacons at least.
	stalledAt = 3
	// checkpointSpace keeps trouble that does not end from filling the stream.
	checkpointSpace = time.Minute
)

// look is what the keeper sees at one moment.
type look struct {
	now     time.Time
	epoch   uint64    // that this process leads
	created time.Time // the stream
	// What had been sent before and after the stream was asked, and the last
	// sequence that it told.
	sentBefore, sentAfter, last uint64
	// Of the log: bytes sent, and messages that never left.
	bytes, holes uint64
}

// keeping is what the keeper remembers from look to look. It is pure.
type keeping struct {
	at look
	// slack is the least seen difference between what was sent and the stream's
	// last sequence: what others sent before, and what this process sent before
	// the stream took anything. A difference above it is what is on its way, or
	// lost.
	slack int64
	known bool
	lost  uint64
	// stalled says that the stream took nothing since the look before, although
	// there was something to take.
	stalled bool
	why     string // a checkpoint is due
	// The last checkpoint: when, how large, and where the log was.
	point, tried time.Time
	size         uint64
	bytes        uint64
}

// look takes in what is seen now and gives the messages that were lost since
// the last time: what had been sent then must have arrived.
func (k *keeping) look(l look) (lost uint64) {
	switch {
	case k.at.epoch != l.epoch:
		k.known, k.why = false, "a new leader"
	case !k.at.created.Equal(l.created) || l.last < k.at.last:
		k.known, k.why = false, "a new stream"
	case l.holes != k.at.holes:
		k.why = "messages that could not be sent"
	}
	ahead := int64(l.sentAfter) - int64(l.last)
	k.stalled = k.known && l.last == k.at.last && l.sentBefore >= k.at.sentAfter+stalledAt
	if k.known {
		if missing := int64(k.at.sentBefore) - int64(l.last) - k.slack; missing > 0 {
			lost = uint64(missing)
			k.lost += lost
			k.why, k.known = "messages that did not arrive", false
		}
	}
	if !k.known || ahead < k.slack {
		k.slack = ahead
	}
	k.known = true
	k.at = l
	return lost
}

// due says why a checkpoint is to be added now; empty when none is. Two are
// space apart.
func (k *keeping) due(cfg HistoryConfig, space time.Duration) string {
	now := k.at.now
	if k.stalled {
		return "" // it would be lost as well
	}
	if !k.tried.IsZero() && now.Sub(k.tried) < min(space, cfg.age()/checkpointShare) {
		return ""
	}
	why := k.why
	switch {
	case why != "":
	case k.point.IsZero():
		why = "a new stream"
	case now.Sub(k.point) >= min(checkpointEvery, cfg.age()/checkpointShare):
		why = "its time has come"
	case k.at.bytes-k.bytes > uint64(cfg.bytes()/checkpointShare):
		why = "much was said since the last"
	}
	if why != "" {
		k.tried = now
	}
	return why
}

// done notes that one was added.
func (k *keeping) done(now time.Time, size uint64) {
	k.point, k.size, k.bytes, k.why = now, size, k.at.bytes, ""
}

// firstChange is the length of the first field of a chunk, which is a change.
func firstChange(raw []byte) int {
	_, _, n := protowire.ConsumeField(raw)
	return max(n, 0)
}
