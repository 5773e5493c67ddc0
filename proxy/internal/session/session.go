// Package session is the token by which a client's next request finds the
// endpoint that answered its first (Gateway API, GEP-1619). It is pure.
//
// A token names an endpoint only to who has its address: it holds a digest of it,
// and when the session began and was last used. It is no secret and no proof:
// whoever makes one up reaches an endpoint that balancing might have chosen too.
package session

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// A Token is what a client brings back.
type Token struct {
	Endpoint    uint64 // Key of it
	Began, Used time.Time
}

// size of a token before it is written as text, in bytes: a version, a key, and
// two times in seconds.
const size = 1 + 8 + 4 + 4

const version = 1

// Key tells the endpoints of a session's name apart.
func Key(name string, addr netip.AddrPort) uint64 {
	h := fnv.New64a()
	b := addr.Addr().As16()
	_, _ = h.Write([]byte(name)) // it never fails
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte{byte(addr.Port() >> 8), byte(addr.Port())})
	return h.Sum64()
}

// String is the token as it travels.
func (t Token) String() string {
	var b [size]byte
	b[0] = version
	binary.BigEndian.PutUint64(b[1:], t.Endpoint)
	binary.BigEndian.PutUint32(b[9:], seconds(t.Began))
	binary.BigEndian.PutUint32(b[13:], seconds(t.Used))
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// seconds since 1970; enough until 2106.
func seconds(t time.Time) uint32 {
	return uint32(min(max(t.Unix(), 0), 1<<32-1))
}

// Parse reads a token; it is false for anything else.
func Parse(s string) (Token, bool) {
	if len(s) != base64.RawURLEncoding.EncodedLen(size) {
		return Token{}, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != size || b[0] != version { // line ends are passed over, and are too few bytes
		return Token{}, false
	}
	at := func(i int) time.Time { return time.Unix(int64(binary.BigEndian.Uint32(b[i:])), 0) }
	return Token{Endpoint: binary.BigEndian.Uint64(b[1:]), Began: at(9), Used: at(13)}, true
}

// Valid reports whether the session goes on at now: not longer than absolute since
// it began, nor idle since it was used; 0 is no limit.
func (t Token) Valid(now time.Time, absolute, idle time.Duration) bool {
	return (absolute <= 0 || now.Sub(t.Began) < absolute) && (idle <= 0 || now.Sub(t.Used) < idle)
}

// FromCookies finds a cookie's value in the lines of Cookie.
func FromCookies(lines []string, name string) string {
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(pair), name+"="); ok {
				return strings.Trim(value, `"`)
			}
		}
	}
	return ""
}

// Cookie is the value of Set-Cookie. life is how long a cookie that outlives the
// client's own session is kept; 0 is one that does not.
func (t Token) Cookie(name string, life time.Duration) string {
	s := name + "=" + t.String() + "; Path=/; HttpOnly"
	if life > 0 {
		s += "; Max-Age=" + strconv.FormatInt(int64(life/time.Second), 10)
	}
	return s
}
