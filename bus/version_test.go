package bus_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weftmesh/weft/bus"
	"github.com/weftmesh/weft/bus/bustest"
	"github.com/weftmesh/weft/bus/internal/logtest"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// versions is a bus whose processes may be of other versions: turn says what
// becomes of the transport of the n-th that joins.
type versions struct {
	logtest.Bus
	n    int
	turn func(n int, t bus.Transport) bus.Transport
}

func (v *versions) Join(cluster string) bus.Transport {
	v.n++
	return v.turn(v.n, v.Bus.Join(cluster))
}

// unknown is a field that no version knows yet.
var unknown = protowire.AppendBytes(protowire.AppendTag(nil, 1234, protowire.BytesType), []byte("of the future"))

// withUnknown adds it to a body that is not compressed, at the top and in each
// part of its first field.
func withUnknown(body []byte) []byte {
	if len(body) == 0 || body[0] != 0 {
		return body
	}
	out := []byte{0}
	for raw := body[1:]; len(raw) > 0; {
		num, typ, n := protowire.ConsumeTag(raw)
		value := raw[n:]
		m := protowire.ConsumeFieldValue(num, typ, value)
		if num != 1 || typ != protowire.BytesType {
			out, raw = append(out, raw[:n+m]...), raw[n+m:]
			continue
		}
		inner, _ := protowire.ConsumeBytes(value)
		out = protowire.AppendBytes(protowire.AppendTag(out, num, typ), append(append([]byte{}, inner...), unknown...))
		raw = raw[n+m:]
	}
	return append(out, unknown...)
}

// later is a process of a later version: its messages have fields and headers
// that this version does not know, and some are of a kind of their own.
type later struct{ bus.Transport }

func (l later) Publish(subject string, header bus.Header, data []byte) error {
	if strings.HasSuffix(subject, ".log") {
		news := bus.Header{"E": header["E"], "S": header["S"], "K": "news"}
		if err := l.Transport.Publish(subject, news, unknown); err != nil {
			return err
		}
		header["Z"] = "of the future"
	}
	return l.Transport.Publish(subject, header, withUnknown(data))
}

func (l later) Serve(subject, group string, answer func(bus.Request)) (bus.Subscription, error) {
	return l.Transport.Serve(subject, group, func(q bus.Request) {
		respond := q.Respond
		q.Respond = func(data []byte) error { return respond(withUnknown(data)) }
		answer(q)
	})
}

func (l later) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	return l.Transport.Request(ctx, subject, append(append([]byte{}, data...), unknown...))
}

// earlier is a process of the first version: it sends no traces, and knows
// nothing of buckets: neither does it send sums of them nor heed those of others.
type earlier struct{ bus.Transport }

func (e earlier) Publish(subject string, header bus.Header, data []byte) error {
	delete(header, "traceparent")
	return e.Transport.Publish(subject, header, data)
}

func withoutBuckets(data []byte) []byte {
	ask := new(busv1.Ask)
	if err := proto.Unmarshal(data, ask); err != nil {
		return data
	}
	ask.Differing = nil
	out, err := proto.Marshal(ask)
	if err != nil {
		return data
	}
	return out
}

func (e earlier) Serve(subject, group string, answer func(bus.Request)) (bus.Subscription, error) {
	return e.Transport.Serve(subject, group, func(q bus.Request) {
		if strings.HasSuffix(subject, ".ask") {
			q.Data = withoutBuckets(q.Data)
		}
		answer(q)
	})
}

func (e earlier) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if strings.HasSuffix(subject, ".ask") {
		data = withoutBuckets(data)
	}
	return e.Transport.Request(ctx, subject, data)
}

// TestVersionsOnOneBus: an upgrade has processes of two versions on one log, the
// writer of either. Whoever knows less keeps and passes on what it does not know.
func TestVersionsOnOneBus(t *testing.T) {
	now := func(t bus.Transport) bus.Transport { return t }
	future := func(t bus.Transport) bus.Transport { return later{t} }
	past := func(t bus.Transport) bus.Transport { return earlier{t} }
	for _, tt := range []struct {
		name           string
		writer, reader func(bus.Transport) bus.Transport
		heals          string // what mends a damaged copy of the reader
	}{
		{"a later writer", future, now, "patch"},
		{"a later reader", now, future, "patch"},
		{"an earlier writer", past, now, "snapshot"},
		{"an earlier reader", now, past, "snapshot"},
		{"a later writer, an earlier reader", future, past, "snapshot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := logtest.NewWorld(t, &versions{Bus: bustest.Memory(), turn: func(n int, tr bus.Transport) bus.Transport {
				if n == 1 {
					return tt.writer(tr)
				}
				return tt.reader(tr)
			}})
			writer, reader := w.Start("writer"), w.Start("reader")
			table := bus.Change{Table: 99, Key: bus.Key("x"), Value: []byte("a table of the future")}
			row := node("n", "a")
			row.Value = append(row.Value, unknown...) // a field of the future in a row
			writer.Lead(table, row, node("m", "a"))
			w.Agree(writer, reader)
			table.Value = []byte("changed")
			writer.Append(table, node("m", "b"))
			w.Agree(writer, reader)
			writer.Append(bus.Change{Table: 99, Key: bus.Key("x")}, node("m", "c"))
			w.Agree(writer, reader)

			// What it missed comes as a range.
			reader.Deaf()
			writer.Append(node("m", "d"))
			writer.Append(node("k", "d"))
			reader.OnLog(nil)
			w.Agree(writer, reader)

			bus.Damage(reader.R, row.Table, row.Key)
			w.Until("the damage is mended", func() error {
				if bus.Repairs(reader.R, tt.heals) < 1 {
					return errors.New("not yet")
				}
				return nil
			})
			w.Agree(writer, reader)

			// The other leads, and a third, which is as this version, starts from
			// either.
			writer.W.Resign()
			reader.Lead(row, node("m", "e"))
			w.Agree(reader, writer, w.Start("third"))
		})
	}
}

// users are the chart's permissions in short, as they were before services had
// inboxes of their own, and as they are.
func users(own bool) []*server.User {
	inbox := func(name string) string {
		if own {
			return "_INBOX." + name + ".>"
		}
		return "_INBOX.>"
	}
	var all []*server.User
	for _, name := range []string{"watcher", "destination"} {
		say := []string{"weft.local.ask", "weft.local.peer.*", "weft.local.presence"}
		if name == "watcher" {
			say = append(say, "weft.local.log")
		}
		all = append(all, &server.User{Username: name, Password: "x", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: say},
			Subscribe: &server.SubjectPermission{Allow: []string{"weft.local.log", "weft.local.ask peers", "weft.local.peer.*", inbox(name)}},
			Response:  &server.ResponsePermission{MaxMsgs: 1, Expires: 2 * time.Minute},
		}})
	}
	return all
}

// joiner connects processes, the first as the watcher, to a server with users.
type joiner struct {
	t    *testing.T
	addr string
	n    int
	old  bool // those that join now have the one inbox of before
}

func (j *joiner) Join(string) bus.Transport {
	j.t.Helper()
	user := "destination"
	if j.n++; j.n == 1 {
		user = "watcher"
	}
	name := user
	if j.old {
		name = "Before" // no service's name: it gets the inbox that all had
	}
	tr, err := bus.Connect(j.t.Context(), bus.Config{Servers: []string{"nats://" + j.addr}}, name, prometheus.NewRegistry(), nats.UserInfo(user, "x"))
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(tr.Close)
	return tr
}

// TestUpgradeAcrossInboxes: servers, writer and readers are replaced one after
// the other, in the worst order. A reader of before follows the log through a new
// server; what it can't ask there any more makes it stale, never wrong, and the
// one that comes in its place is whole. A new reader works with an old server.
func TestUpgradeAcrossInboxes(t *testing.T) {
	t.Parallel()
	serve := func(port int, own bool) *bustest.Local {
		return bustest.ServerWith(t, server.Options{Host: "127.0.0.1", Port: port, Users: users(own)})
	}
	srv := serve(server.RANDOM_PORT, false)
	addr := strings.TrimPrefix(srv.Config().Servers[0], "nats://")
	j := &joiner{t: t, addr: addr, old: true}
	w := logtest.NewWorld(t, j)
	writer, before := w.Start("writer"), w.Start("before")
	writer.Lead(node("a", "1"), node("b", "1"))
	w.Agree(writer, before)
	j.old = false
	early := w.Start("early") // the new reader came before the new server
	w.Agree(writer, before, early)

	// The server is replaced.
	srv.Stop()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	serve(number, true)
	w.Until("all are back", func() error {
		writer.Append(node("a", strconv.FormatInt(time.Now().UnixNano(), 10)))
		if early.R.Status().Seq != writer.R.Status().Seq {
			return errors.New("not yet")
		}
		return nil
	})
	w.Agree(writer, early)
	// It may have missed something while it was away; then it can't ask, and goes
	// on with what it has.
	for _, c := range before.R.Rows(busv1.Table_TABLE_NODES) {
		if c.Key == "b" && string(c.Value) != string(node("b", "1").Value) {
			t.Errorf("a row that nobody changed is %v", c)
		}
	}
	before.Stop()
	after := w.Start("after")
	w.Agree(writer, early, after)
	writer.Append(node("b", "2"))
	w.Agree(writer, early, after)
}
