package hpack

// pair is an entry of a table.
type pair struct{ name, value string }

func (p pair) size() int { return len(p.name) + len(p.value) + 32 }

// static is the static table (RFC 7541, appendix A); index 0 is unused.
var static = [...]pair{
	1: {":authority", ""},
	{":method", "GET"},
	{":method", "POST"},
	{":path", "/"},
	{":path", "/index.html"},
	{":scheme", "http"},
	{":scheme", "https"},
	{":status", "200"},
	{":status", "204"},
	{":status", "206"},
	{":status", "304"},
	{":status", "400"},
	{":status", "404"},
	{":status", "500"},
	{"accept-charset", ""},
	{"accept-encoding", "gzip, deflate"},
	{"accept-language", ""},
	{"accept-ranges", ""},
	{"accept", ""},
	{"access-control-allow-origin", ""},
	{"age", ""},
	{"allow", ""},
	{"authorization", ""},
	{"cache-control", ""},
	{"content-disposition", ""},
	{"content-encoding", ""},
	{"content-language", ""},
	{"content-length", ""},
	{"content-location", ""},
	{"content-range", ""},
	{"content-type", ""},
	{"cookie", ""},
	{"date", ""},
	{"etag", ""},
	{"expect", ""},
	{"expires", ""},
	{"from", ""},
	{"host", ""},
	{"if-match", ""},
	{"if-modified-since", ""},
	{"if-none-match", ""},
	{"if-range", ""},
	{"if-unmodified-since", ""},
	{"last-modified", ""},
	{"link", ""},
	{"location", ""},
	{"max-forwards", ""},
	{"proxy-authenticate", ""},
	{"proxy-authorization", ""},
	{"range", ""},
	{"referer", ""},
	{"refresh", ""},
	{"retry-after", ""},
	{"server", ""},
	{"set-cookie", ""},
	{"strict-transport-security", ""},
	{"transfer-encoding", ""},
	{"user-agent", ""},
	{"vary", ""},
	{"via", ""},
	{"www-authenticate", ""},
}

// statics is the number of entries of the static table.
const statics = len(static) - 1

// staticNames is the first index of a name in the static table.
var staticNames = func() map[string]uint8 {
	m := make(map[string]uint8, statics)
	for i := statics; i > 0; i-- {
		m[static[i].name] = uint8(i)
	}
	return m
}()

// staticPair is the index of a whole entry, 0 if there is none.
func staticPair(name, value string) int {
	first := int(staticNames[name])
	if first == 0 {
		return 0
	}
	for i := first; i <= statics && static[i].name == name; i++ {
		if static[i].value == value {
			return i
		}
	}
	return 0
}
