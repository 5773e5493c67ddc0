package bus

import (
	"testing"
	"time"
)

// TestKeeping: what was sent before the last look must have arrived by now;
// what is on its way is nobody's loss.
func TestKeeping(t *testing.T) {
	begin := nowhen()
	cfg := HistoryConfig{Age: 24 * time.Hour, Bytes: 100 << 20}
	type step struct {
		at                  time.Duration
		epoch               uint64
		created             int
		before, after, last uint64
		bytes, holes        uint64
		lost                uint64
		why                 string
	}
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"a stream that others have filled", []step{
			{0, 7, 1, 10, 10, 500, 0, 0, 0, "a new leader"},
			{5 * time.Second, 7, 1, 20, 20, 510, 0, 0, 0, ""},
			{10 * time.Second, 7, 1, 30, 30, 520, 0, 0, 0, ""},
		}},
		{"on its way", []step{
			{0, 7, 1, 10, 12, 4, 0, 0, 0, "a new leader"},
			{5 * time.Second, 7, 1, 20, 25, 18, 0, 0, 0, ""},
			{10 * time.Second, 7, 1, 30, 30, 30, 0, 0, 0, ""},
			{15 * time.Second, 7, 1, 40, 44, 30, 0, 0, 0, ""},
		}},
		{"lost", []step{
			{0, 7, 1, 10, 10, 10, 0, 0, 0, "a new leader"},
			{5 * time.Second, 7, 1, 20, 20, 17, 0, 0, 0, ""},
			{65 * time.Second, 7, 1, 30, 30, 27, 0, 0, 0, ""},
		}},
		{"lost for long", []step{
			{0, 7, 1, 10, 10, 10, 0, 0, 0, "a new leader"},
			{60 * time.Second, 7, 1, 20, 20, 15, 0, 0, 0, ""},
			{120 * time.Second, 7, 1, 30, 30, 15, 0, 0, 5, ""}, // a checkpoint would be lost, too
			{180 * time.Second, 7, 1, 40, 40, 25, 0, 0, 0, "messages that did not arrive"},
		}},
		{"it takes nothing", []step{
			{0, 7, 1, 10, 10, 10, 0, 0, 0, "a new leader"},
			{60 * time.Second, 7, 1, 20, 20, 10, 0, 0, 0, ""},
			{120 * time.Second, 7, 1, 30, 30, 10, 0, 0, 10, ""},
			{180 * time.Second, 7, 1, 40, 40, 10, 0, 0, 0, ""},
			{240 * time.Second, 7, 1, 50, 50, 20, 0, 0, 0, "messages that did not arrive"},
		}},
		{"holes, but not at once", []step{
			{0, 7, 1, 10, 10, 10, 0, 0, 0, "a new leader"},
			{5 * time.Second, 7, 1, 20, 20, 20, 0, 1, 0, ""},
			{65 * time.Second, 7, 1, 30, 30, 30, 0, 1, 0, "messages that could not be sent"},
		}},
		{"the stream was made anew, another leader", []step{
			{0, 7, 1, 10, 10, 10, 0, 0, 0, "a new leader"},
			{65 * time.Second, 7, 2, 20, 20, 3, 0, 0, 0, "a new stream"},
			{130 * time.Second, 8, 2, 30, 30, 13, 0, 0, 0, "a new leader"},
		}},
		{"much said, and an hour", []step{
			{0, 7, 1, 10, 10, 10, 0, 0, 0, "a new leader"},
			{10 * time.Minute, 7, 1, 20, 20, 20, 26 << 20, 0, 0, "much was said since the last"},
			{20 * time.Minute, 7, 1, 20, 20, 20, 27 << 20, 0, 0, ""},
			{70 * time.Minute, 7, 1, 20, 20, 20, 27 << 20, 0, 0, "its time has come"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var k keeping
			for i, s := range tt.steps {
				lost := k.look(look{
					now: begin.Add(s.at), epoch: s.epoch, created: time.Unix(int64(s.created), 0),
					sentBefore: s.before, sentAfter: s.after, last: s.last, bytes: s.bytes, holes: s.holes,
				})
				why := k.due(cfg, checkpointSpace)
				if lost != s.lost || why != s.why {
					t.Errorf("step %d: lost %d, due %q; want %d, %q", i, lost, why, s.lost, s.why)
				}
				if why != "" {
					k.done(begin.Add(s.at), 100)
				}
			}
		})
	}
}

func TestHistoryConfig(t *testing.T) {
	if err := (HistoryConfig{Domain: HistoryDomain}).Check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []HistoryConfig{{Age: time.Second}, {Age: 1000 * 24 * time.Hour}, {Bytes: 5}, {Domain: "a.b"}} {
		if bad.Check() == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func FuzzStreamInfo(f *testing.F) {
	f.Add([]byte(`{"config":{"name":"x","max_age":5},"created":"2026-11-30T15:50:20.878019594Z","state":{"first_seq":1,"last_seq":21}}`))
	f.Add([]byte(`{"error":{"code":404,"err_code":10059,"description":"stream not found"}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		info, err := parseInfo(body)
		if err != nil {
			return
		}
		_, _ = archiveOf("c", "d").config(HistoryConfig{}).over(info.whole)
	})
}

func FuzzDirectAnswer(f *testing.F) {
	f.Add("", "5", "2026-11-30T15:50:20.878Z", "7")
	f.Add("204", "", "", "0")
	f.Fuzz(func(t *testing.T, status, seq, stored, pending string) {
		d, err := answerOf(Message{Header: Header{headerStatus: status, headerSeqOf: seq, headerStored: stored, headerPending: pending}})
		if err == nil && d.end != (status == "204" || status == "404") {
			t.Errorf("status %q: end %t", status, d.end)
		}
	})
}
