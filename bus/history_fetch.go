package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// survey asks what the stream holds, and for its checkpoints that are whole.
func (h *History) survey(ctx context.Context) (streamInfo, []mark, error) {
	asking, cancel := context.WithTimeout(ctx, pageWait)
	defer cancel()
	body, err := h.Request(asking, h.names.info, nil)
	if errors.Is(err, ErrNoPeers) {
		return streamInfo{}, nil, fmt.Errorf("no JetStream answers: %w", ErrNoHistory)
	}
	if err != nil {
		return streamInfo{}, nil, err
	}
	info, err := parseInfo(body)
	if errors.Is(err, errNoHistory) {
		return streamInfo{}, nil, fmt.Errorf("%s: %w: %w", h.names.stream, err, ErrNoHistory)
	}
	if err != nil {
		return streamInfo{}, nil, err
	}
	var marks []mark
	err = h.scan(ctx, h.names.mark, max(1, info.State.First), func(m kept, raw Message) (bool, error) {
		c := new(busv1.Checkpoint)
		if unpackMessage(raw.Data, c) == nil && c.GetAfter()+1 >= info.State.First {
			marks = append(marks, mark{c, m.seq, m.stored})
		}
		return len(marks) == maxMarks, nil
	})
	return info, marks, err
}

// errGone means that a part of a checkpoint is not there (any more).
var errGone = errors.New("a part of the checkpoint is gone")

// rowsAt reads the selected rows from a checkpoint, of which only the chunks
// that can hold them are asked for.
func (h *History) rowsAt(ctx context.Context, m mark, pick []Selection) ([]Change, error) {
	var rows []Change
	for _, i := range chunksFor(m.GetChunks(), pick) {
		body, err := h.one(ctx, h.names.chunkSubject(m.GetId(), i))
		if err != nil {
			return nil, err
		}
		raw, err := unpack(body)
		if err != nil {
			return nil, err
		}
		chunk, _, err := decodeChanges(raw)
		if err != nil {
			return nil, err
		}
		rows = append(rows, newFold(pick).picked(chunk)...)
	}
	return rows, nil
}

// chunksFor names the chunks that can hold selected rows: they are in the order
// of tables and keys.
func chunksFor(starts []*busv1.ChunkStart, pick []Selection) []int {
	var out []int
	for i, s := range starts {
		may := func(p Selection) bool {
			if s.GetTable() > p.Table || s.GetTable() == p.Table && s.GetKey() > p.Prefix && !strings.HasPrefix(s.GetKey(), p.Prefix) {
				return false // it begins after them
			}
			if i+1 == len(starts) {
				return true
			}
			next := starts[i+1]
			return next.GetTable() > p.Table || next.GetTable() == p.Table && next.GetKey() > p.Prefix
		}
		if slices.ContainsFunc(pick, may) {
			out = append(out, i)
		}
	}
	return out
}

// getRequest is a question for messages of the stream.
type getRequest struct {
	Seq   uint64 `json:"seq,omitempty"`
	Next  string `json:"next_by_subj,omitempty"`
	Last  string `json:"last_by_subj,omitempty"`
	Batch int    `json:"batch,omitempty"`
	Bytes int    `json:"max_bytes,omitempty"`
}

// one gets the last message of a subject.
func (h *History) one(ctx context.Context, subject string) ([]byte, error) {
	q, err := json.Marshal(getRequest{Last: subject})
	if err != nil {
		return nil, err
	}
	var body []byte
	err = h.askMany(ctx, h.names.get, q, func(m Message) (bool, error) {
		a, err := answerOf(m)
		if err != nil {
			return true, err
		}
		if a.end {
			return true, errGone
		}
		body = m.Data
		return true, nil
	})
	return body, err
}

// scan hands the messages of a subject to each, from a sequence of the stream
// on, until that says so or there are no more.
func (h *History) scan(ctx context.Context, subject string, from uint64, each func(m kept, raw Message) (done bool, err error)) error {
	read := 0
	for more := true; more; {
		q, err := json.Marshal(getRequest{Seq: from, Next: subject, Batch: pageMessages, Bytes: pageBytes})
		if err != nil {
			return err
		}
		more = false
		err = h.askMany(ctx, h.names.get, q, func(m Message) (bool, error) {
			a, err := answerOf(m)
			if err != nil {
				return true, err
			}
			if a.end {
				more = more && a.pending > 0
				return true, nil
			}
			from, more = a.seq+1, true
			if read++; h.Progress != nil && read%pageMessages == 0 {
				h.Progress(read)
			}
			done, err := each(kept{seq: a.seq, stored: a.stored, body: m.Data}, m)
			if done || err != nil {
				more = false
			}
			return done || err != nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// scanLog is scan for the log's own messages. What can't be read as one is left
// out, and shows as a gap.
func (h *History) scanLog(ctx context.Context, from uint64, each func(kept) (done bool, err error)) error {
	return h.scan(ctx, h.names.log, from, func(m kept, raw Message) (bool, error) {
		var err error
		if m.head, err = parseHead(raw.Header); err != nil {
			return false, nil
		}
		return each(m)
	})
}
