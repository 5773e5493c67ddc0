package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

const (
	statusGroup = "status"
	// statusPage bounds one answer before compression.
	statusPage = 512 << 10
	// statusWait is how long one page may take: a busy replica derives all
	// statuses anew for it.
	statusWait = 5 * time.Second
	// maxStatusAsks bounds the questions that wait for one replica.
	maxStatusAsks = 16
	// maxStatusPages bounds one question: some millions of statuses.
	maxStatusPages = 10_000
)

// ErrBehind means that who answered does not know the log as far as was asked.
// Another may, or the same one in a moment.
var ErrBehind = errors.New("the log is not known as far as was asked")

// Wanted is what the statuses of all objects should say, as of one point of the
// log.
type Wanted struct {
	Epoch, Seq uint64
	// Statuses are in the order of their keys, which are different.
	Statuses []*busv1.Status
}

// ServeStatus answers AskStatus with what wanted returns, as one of all who do,
// until ctx ends. wanted is called once for each page, one call at a time, and
// what it returned is not changed.
func ServeStatus(ctx context.Context, t Transport, wanted func() Wanted) error {
	asks := make(chan Request, maxStatusAsks)
	sub, err := t.Serve(subjectsOf(t).status, statusGroup, func(q Request) {
		select {
		case asks <- q:
		default: // the asker asks again
		}
	})
	if err != nil {
		return fmt.Errorf("serving statuses: %w", err)
	}
	defer sub.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case q := <-asks:
			ask := new(busv1.StatusAsk)
			if proto.Unmarshal(q.Data, ask) != nil {
				continue
			}
			_ = q.Respond(packMessage(page(ask, wanted()))) // the asker asks again
		}
	}
}

// page is the answer to one question.
func page(ask *busv1.StatusAsk, w Wanted) *busv1.StatusAnswer {
	out := &busv1.StatusAnswer{Epoch: w.Epoch, Seq: w.Seq}
	if (position{w.Epoch, w.Seq}).before(position{ask.GetEpoch(), ask.GetSeq()}) {
		out.Behind = true
		return out
	}
	first, found := slices.BinarySearchFunc(w.Statuses, ask.GetAfter(), func(s *busv1.Status, after string) int {
		return strings.Compare(s.GetKey(), after)
	})
	if found {
		first++
	}
	size := 0
	for _, s := range w.Statuses[first:] {
		n := proto.Size(s)
		if n > statusPage {
			// Kubernetes would not take it, either.
			slog.Warn("a wanted status is too large and is left out", "key", s.GetKey(), "bytes", n)
			continue
		}
		if size += n; size > statusPage {
			out.More = true
			break
		}
		out.Statuses = append(out.Statuses, s)
	}
	return out
}

// AskStatus asks for the wanted statuses of all objects, by whoever knows the log
// at least as far as epoch and seq, page by page. It fails with ErrBehind when
// one who doesn't has answered, and with ErrNoPeers when nobody does. What it
// returns has the earliest point of the log of all pages.
func AskStatus(ctx context.Context, t Transport, epoch, seq uint64) (Wanted, error) {
	var out Wanted
	after := ""
	for range maxStatusPages {
		a, err := askStatusPage(ctx, t, &busv1.StatusAsk{Epoch: epoch, Seq: seq, After: after})
		if err != nil {
			return Wanted{}, err
		}
		if from := (position{a.GetEpoch(), a.GetSeq()}); out.Epoch == 0 || from.before(position{out.Epoch, out.Seq}) {
			out.Epoch, out.Seq = from.epoch, from.seq
		}
		for _, s := range a.GetStatuses() {
			if s.GetKey() <= after {
				return Wanted{}, fmt.Errorf("reading statuses: %w: keys are not in order", errBody)
			}
			after = s.GetKey()
		}
		out.Statuses = append(out.Statuses, a.GetStatuses()...)
		if !a.GetMore() {
			return out, nil
		}
		if len(a.GetStatuses()) == 0 {
			return Wanted{}, fmt.Errorf("reading statuses: %w: an empty page of several", errBody)
		}
	}
	return Wanted{}, fmt.Errorf("reading statuses: %w: more than %d pages", errBody, maxStatusPages)
}

func askStatusPage(ctx context.Context, t Transport, ask *busv1.StatusAsk) (*busv1.StatusAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	body, err := t.Request(ctx, subjectsOf(t).status, Encode(ask))
	if err != nil {
		return nil, fmt.Errorf("asking for statuses: %w", err)
	}
	a := new(busv1.StatusAnswer)
	if err := unpackMessage(body, a); err != nil {
		return nil, fmt.Errorf("reading statuses: %w", err)
	}
	if a.GetBehind() {
		return nil, fmt.Errorf("asking for statuses of %d/%d: %w: %d/%d", ask.GetEpoch(), ask.GetSeq(), ErrBehind, a.GetEpoch(), a.GetSeq())
	}
	return a, nil
}
