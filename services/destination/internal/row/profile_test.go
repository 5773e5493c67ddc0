package row

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weftmesh/weft/bus"
	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

func profile(t testing.TB, text string) (*ServiceProfile, error) {
	t.Helper()
	m := &busv1.ServiceProfile{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return DecodeServiceProfile(bus.Encode(m))
}

// TestServiceProfileIsRefusedAsAWhole lists the mistakes that leave the old
// profile in place (spec §4.2).
func TestServiceProfileIsRefusedAsAWhole(t *testing.T) {
	class := func(condition string) string {
		return `{"routes":[{"condition":{"method":"GET"},"responseClasses":[{"condition":` + condition + `}]}]}`
	}
	for name, text := range map[string]string{
		"no condition":             `{"routes":[{"name":"a"}]}`,
		"empty condition":          `{"routes":[{"name":"a","condition":{}}]}`,
		"second route":             `{"routes":[{"name":"a","condition":{"method":"GET"}},{"name":"b"}]}`,
		"empty in all":             `{"routes":[{"condition":{"all":[{"method":"GET"},{}]}}]}`,
		"empty in any":             `{"routes":[{"condition":{"any":[{}]}}]}`,
		"empty in not":             `{"routes":[{"condition":{"not":{}}}]}`,
		"nested too deeply":        `{"routes":[{"condition":` + strings.Repeat(`{"not":`, 40) + `{"method":"GET"}` + strings.Repeat("}", 40) + `}]}`,
		"no response condition":    `{"routes":[{"condition":{"method":"GET"},"responseClasses":[{}]}]}`,
		"empty response condition": class(`{}`),
		"response nested deeply":   class(strings.Repeat(`{"not":`, 40) + `{"status":{"min":500}}` + strings.Repeat("}", 40)),
		"empty in response all":    class(`{"all":[{}]}`),
		"empty in response any":    class(`{"any":[{}]}`),
		"empty in response not":    class(`{"not":{}}`),
		"no status":                class(`{"status":{}}`),
		"status too small":         class(`{"status":{"min":99}}`),
		"status too large":         class(`{"status":{"max":600}}`),
		"status range reversed":    class(`{"status":{"min":500,"max":400}}`),
		"ttl without unit":         `{"retryBudget":{"retryRatio":0.2,"minRetriesPerSecond":1,"ttl":"10"}}`,
		"no ttl":                   `{"retryBudget":{"retryRatio":0.2}}`,
	} {
		if p, err := profile(t, text); err == nil {
			t.Errorf("%s: accepted as %+v", name, p)
		}
	}
	for name, text := range map[string]string{
		"nothing":          `{}`,
		"only min":         class(`{"status":{"min":404}}`),
		"only max":         class(`{"status":{"max":404}}`),
		"odd timeout":      `{"routes":[{"condition":{"method":"GET"},"timeout":"soon"}]}`,
		"negative timeout": `{"routes":[{"condition":{"method":"GET"},"timeout":"-1s"}]}`,
	} {
		p, err := profile(t, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(p.Routes) > 0 && p.Routes[0].GetTimeout() != nil {
			t.Errorf("%s: timeout %v, want none", name, p.Routes[0].GetTimeout())
		}
	}
}

func TestMembers(t *testing.T) {
	got := members("plum", " plum@east,fig@north ,plum@east,nonsense,@east,plum@,a@b@c,")
	want := []Remote{{"", "plum"}, {"east", "plum"}, {"north", "fig"}}
	if len(got) != len(want) {
		t.Fatalf("members() = %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("members()[%d] = %v, want %v", i, got[i], want[i])
		}
	}
	if got := members("", strings.Repeat("x@y,", 10)+manyMembers(maxMembers+10)); len(got) != maxMembers {
		t.Errorf("%d members were read, want at most %d", len(got), maxMembers)
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("a", i+1) + "@east,")
	}
	return b.String()
}

func FuzzMembers(f *testing.F) {
	f.Add("plum", "plum@east,fig@north")
	f.Add("", "@,@@,")
	f.Fuzz(func(t *testing.T, local, remotes string) {
		for _, m := range members(local, remotes) {
			if m.Service == "" || strings.ContainsAny(m.Cluster, "@,") {
				t.Fatalf("members(%q, %q) has %+v", local, remotes, m)
			}
		}
	})
}
