package bus

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The history is a JetStream stream over the log's own subject: the server
// writes down what goes by, and the log does not know of it. It is a witness
// only: no reader and no writer ever asks it, and losing it costs the past.
//
// A stream with an end forgets the row that was put before it began, so the
// writer adds the whole state, a checkpoint, from time to time. A question is
// answered from the last checkpoint before it and the messages since.

// HistoryConfig says whether and how much of the log is kept.
type HistoryConfig struct {
	Enabled bool          `help:"keep the log in a JetStream stream, for weft history"`
	Age     time.Duration `help:"how long it is kept; 0 means 24h"`
	Bytes   int64         `help:"bytes of it that are kept at most; 0 means 1 GiB"`
	Domain  string        `help:"JetStream domain of the server that keeps it; empty means the servers of the bus themselves"`
}

const (
	// HistoryDomain is the domain of the server that the chart and weft bus run.
	HistoryDomain = "history"

	historyAge   = 24 * time.Hour
	historyBytes = 1 << 30
	// The stream must be able to hold some checkpoints.
	minHistoryAge   = time.Minute
	maxHistoryAge   = 90 * 24 * time.Hour
	minHistoryBytes = 1 << 20
)

// Check reports what makes no sense.
func (c HistoryConfig) Check() error {
	var errs []error
	if c.Age != 0 && (c.Age < minHistoryAge || c.Age > maxHistoryAge) {
		errs = append(errs, fmt.Errorf("history age: %s is not between %s and %s", c.Age, minHistoryAge, maxHistoryAge))
	}
	if c.Bytes != 0 && c.Bytes < minHistoryBytes {
		errs = append(errs, fmt.Errorf("history bytes: %d is less than %d", c.Bytes, minHistoryBytes))
	}
	if c.Domain != "" && !validToken(c.Domain) {
		errs = append(errs, fmt.Errorf("history domain: %q is not one word of a-z, 0-9 and -", c.Domain))
	}
	return errors.Join(errs...)
}

func (c HistoryConfig) age() time.Duration { return cmp.Or(c.Age, historyAge) }
func (c HistoryConfig) bytes() int64       { return cmp.Or(c.Bytes, historyBytes) }

// archive are the names of one cluster's history.
type archive struct {
	// stream is its name; info, create and update are asked of its keeper, get
	// of anybody who may read.
	stream, info, create, update, get string
	log                               string
	// mark is the subject of checkpoints, and chunk what their chunks' begin with.
	mark, chunk string
}

func archiveOf(cluster, domain string) archive {
	api := "$JS.API."
	if domain != "" {
		api = "$JS." + domain + ".API."
	}
	base, stream := "weft."+cluster, "weft-"+cluster
	return archive{
		stream: stream,
		info:   api + "STREAM.INFO." + stream,
		create: api + "STREAM.CREATE." + stream,
		update: api + "STREAM.UPDATE." + stream,
		get:    api + "DIRECT.GET." + stream,
		log:    base + ".log",
		mark:   base + ".checkpoint",
		chunk:  base + ".checkpoint.",
	}
}

func (a archive) chunkSubject(id string, i int) string { return fmt.Sprintf("%s%s.%d", a.chunk, id, i) }

// streamConfig is what JetStream is told to keep. Only what we set is compared
// with what is there: servers add settings of their own.
type streamConfig struct {
	Name       string   `json:"name"`
	Subjects   []string `json:"subjects"`
	Retention  string   `json:"retention"`
	Discard    string   `json:"discard"`
	Storage    string   `json:"storage"`
	MaxAge     int64    `json:"max_age"` // nanoseconds
	MaxBytes   int64    `json:"max_bytes"`
	MaxMsgs    int64    `json:"max_msgs"`
	Replicas   int      `json:"num_replicas"`
	Compress   string   `json:"compression"`
	Direct     bool     `json:"allow_direct"`
	KeepsAll   bool     `json:"deny_delete"`
	NeverPurge bool     `json:"deny_purge"`
}

// stream is the configuration for as much as cfg says: the oldest goes first,
// and nobody may take out anything else.
func (a archive) config(cfg HistoryConfig) streamConfig {
	return streamConfig{
		Name: a.stream, Subjects: []string{a.log, a.mark, a.chunk + ">"},
		Retention: "limits", Discard: "old", Storage: "file",
		MaxAge: int64(cfg.age()), MaxBytes: cfg.bytes(), MaxMsgs: -1, Replicas: 1,
		// Beacons are half a kilobyte each and hardly differ.
		Compress: "s2", Direct: true, KeepsAll: true, NeverPurge: true,
	}
}

// streamInfo is what JetStream says of the stream.
type streamInfo struct {
	Config streamConfig `json:"config"`
	// whole is the configuration as JetStream writes it.
	whole   json.RawMessage
	Created time.Time `json:"created"`
	State   struct {
		Bytes uint64    `json:"bytes"`
		First uint64    `json:"first_seq"`
		Since time.Time `json:"first_ts"`
		Last  uint64    `json:"last_seq"`
		Until time.Time `json:"last_ts"`
	} `json:"state"`
	Error *streamError `json:"error"`
}

// streamError is a refusal of JetStream.
type streamError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *streamError) Error() string {
	return fmt.Sprintf("JetStream: %.200s (%d)", e.Description, e.Code)
}

// noStream is JetStream's number for a stream that is not there.
const noStream = 10059

// errNoHistory means that the stream does not exist.
var errNoHistory = errors.New("there is no stream")

// parseInfo reads an answer of the stream's API.
func parseInfo(body []byte) (streamInfo, error) {
	var info streamInfo
	var whole struct {
		Config json.RawMessage `json:"config"`
	}
	if err := errors.Join(json.Unmarshal(body, &info), json.Unmarshal(body, &whole)); err != nil {
		return streamInfo{}, fmt.Errorf("%w: %w", errBody, err)
	}
	info.whole = whole.Config
	switch {
	case info.Error != nil && info.Error.Code == noStream:
		return streamInfo{}, errNoHistory
	case info.Error != nil:
		return streamInfo{}, info.Error
	}
	return info, nil
}

// fits says whether a stream keeps what it should. Its other settings are left to
// whoever made it: replicas, placement, storage.
func (c streamConfig) fits(is streamConfig) bool {
	return slices.Equal(c.Subjects, is.Subjects) && c.MaxAge == is.MaxAge && c.MaxBytes == is.MaxBytes && is.Direct && is.KeepsAll && is.NeverPurge
}

// over is c's rules written over a configuration that is there.
func (c streamConfig) over(whole json.RawMessage) ([]byte, error) {
	is := make(map[string]any)
	if err := json.Unmarshal(whole, &is); err != nil {
		return nil, fmt.Errorf("%w: %w", errBody, err)
	}
	is["subjects"], is["max_age"], is["max_bytes"] = c.Subjects, c.MaxAge, c.MaxBytes
	is["allow_direct"], is["deny_delete"], is["deny_purge"] = true, true, true
	out, err := json.Marshal(is)
	if err != nil {
		return nil, fmt.Errorf("writing the stream's settings: %w", err)
	}
	return out, nil
}
