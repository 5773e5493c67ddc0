package bus

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The headers of a message on the log's subject. A reader decides from them
// alone whether to drop, apply or repair.
const (
	headerEpoch = "E"
	headerSeq   = "S"
	headerKind  = "K"
	// headerPart is "0" for a cut in one message; the parts of a bigger cut are
	// "0+", "1+", … and the last has no "+". Absent means "0".
	headerPart = "P"
	// Where the epoch before ended: a reader exactly there may go on, every
	// other one must ask. Only on the first sequence of an epoch.
	headerPrevEpoch = "PE"
	headerPrevSeq   = "PS"
	headerTrace     = "traceparent"

	kindBatch  = "batch"
	kindBeacon = "beacon"
)

// maxParts bounds the parts of a cut: maxCut in parts of at least one row of
// any size, with room to spare.
const maxParts = 4096

var errHeader = errors.New("malformed header")

// position is a place in the log. Epochs order before sequences.
type position struct{ epoch, seq uint64 }

func (p position) before(o position) bool {
	return p.epoch < o.epoch || (p.epoch == o.epoch && p.seq < o.seq)
}

// head is what a log message says of itself.
type head struct {
	position
	beacon bool
	part   int
	more   bool
	// prev is zero but on the first sequence of an epoch.
	prev  position
	trace string
}

func (h head) header() Header {
	out := Header{
		headerEpoch: strconv.FormatUint(h.epoch, 10),
		headerSeq:   strconv.FormatUint(h.seq, 10),
		headerKind:  kindBatch,
	}
	if h.beacon {
		out[headerKind] = kindBeacon
	}
	if h.part > 0 || h.more {
		p := strconv.Itoa(h.part)
		if h.more {
			p += "+"
		}
		out[headerPart] = p
	}
	if h.prev != (position{}) {
		out[headerPrevEpoch] = strconv.FormatUint(h.prev.epoch, 10)
		out[headerPrevSeq] = strconv.FormatUint(h.prev.seq, 10)
	}
	if h.trace != "" {
		out[headerTrace] = h.trace
	}
	return out
}

// parseHead reads the headers of a log message. Nobody but the writer may
// publish there, but what comes is checked as if anybody could.
func parseHead(in Header) (head, error) {
	var h head
	var err error
	if h.epoch, err = number(in, headerEpoch); err != nil {
		return head{}, err
	}
	if h.seq, err = number(in, headerSeq); err != nil {
		return head{}, err
	}
	switch in[headerKind] {
	case kindBatch:
	case kindBeacon:
		h.beacon = true
	default:
		return head{}, fmt.Errorf("%w: unknown kind %.20q", errHeader, in[headerKind])
	}
	if p, ok := in[headerPart]; ok {
		digits, more := strings.CutSuffix(p, "+")
		n, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || n >= maxParts {
			return head{}, fmt.Errorf("%w: part %.20q", errHeader, p)
		}
		h.part, h.more = int(n), more
	}
	if _, ok := in[headerPrevEpoch]; ok {
		if h.prev.epoch, err = number(in, headerPrevEpoch); err != nil {
			return head{}, err
		}
		if h.prev.seq, err = number(in, headerPrevSeq); err != nil {
			return head{}, err
		}
		if h.prev.epoch >= h.epoch {
			return head{}, fmt.Errorf("%w: epoch %d follows %d", errHeader, h.epoch, h.prev.epoch)
		}
	}
	if t := in[headerTrace]; len(t) <= maxTrace {
		h.trace = t
	}
	return h, nil
}

// A W3C traceparent has 55 bytes.
const maxTrace = 128

func number(in Header, name string) (uint64, error) {
	n, err := strconv.ParseUint(in[name], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is %.20q", errHeader, name, in[name])
	}
	return n, nil
}
