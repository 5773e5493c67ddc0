package message

import "testing"

func TestAuthorities(t *testing.T) {
	for s, want := range map[string]struct{ valid, target bool }{
		"":                            {true, false},
		"a.test":                      {true, false},
		"a_b.test":                    {true, false},
		"a.test.":                     {true, false},
		"a.test:":                     {true, false},
		"a.test:80":                   {true, true},
		"10.1.2.3:65535":              {true, true},
		"a%20b.test":                  {true, false},
		"sub!$&'()*+;=~.test":         {true, false},
		"[::1]":                       {true, false},
		"[::1]:":                      {true, false},
		"[::1]:80":                    {true, true},
		"[fe80::1%25eth0]:80":         {true, true},
		"[fe80::1%eth0]":              {true, false},
		"[::ffff:10.1.2.3]":           {true, false},
		"[v1.fe:80]":                  {true, false},
		"a.test:80:81":                {false, false},
		"a.test:x":                    {false, false},
		"a.test:-1":                   {false, false},
		"a.test:65536":                {false, false},
		"a.test:99999999999999999999": {false, false},
		":80":                         {false, false},
		":":                           {false, false},
		"::1":                         {false, false},
		"[::1":                        {false, false},
		"::1]":                        {false, false},
		"[]":                          {false, false},
		"[a.test]":                    {false, false},
		"[::1]x":                      {false, false},
		"[::1]80":                     {false, false},
		"[::g]":                       {false, false},
		"[fe80::1%]":                  {false, false},
		"a[b]":                        {false, false},
		"a%zz":                        {false, false},
		"a%2":                         {false, false},
		"u@a.test":                    {false, false},
		"a.test/":                     {false, false},
		"a.test?x":                    {false, false},
		"a.test#x":                    {false, false},
		"a.test\\":                    {false, false},
		"a b":                         {false, false},
		"a,b":                         {false, false},
		"a\x00":                       {false, false},
		"caf\u00e9":                   {false, false},
	} {
		if got := ValidAuthority(s); got != want.valid {
			t.Errorf("ValidAuthority(%q) = %v", s, got)
		}
		if got := ValidTarget(s); got != want.target {
			t.Errorf("ValidTarget(%q) = %v", s, got)
		}
	}
}

func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"", "[", "[v", "a:", "[::1%25]:1", "a%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ValidTarget(s) && !ValidAuthority(s) {
			t.Errorf("%q is a target and no authority", s)
		}
		for i := range len(s) {
			if c := s[i]; (c <= ' ' || c >= 0x7f || c == '@' || c == '/' || c == ',') && ValidAuthority(s) {
				t.Errorf("%q", s)
			}
		}
	})
}

func TestUpgrade(t *testing.T) {
	asked := func(v Version, connection string, upgrade ...string) *Request {
		r := &Request{Version: v, Fields: Fields{{Name: "Connection", Value: connection}}}
		for _, u := range upgrade {
			r.Fields.Add("Upgrade", u)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		r    *Request
		want string
	}{
		{"a web socket", asked(HTTP11, "keep-alive, UPGRADE", "websocket"), "websocket"},
		{"with a version", asked(HTTP11, "upgrade", "foo/2"), "foo/2"},
		{"over HTTP/1.0", asked(HTTP10, "upgrade", "websocket"), ""},
		{"not named by Connection", asked(HTTP11, "keep-alive", "websocket"), ""},
		{"to nothing", asked(HTTP11, "upgrade"), ""},
		{"HTTP/2", asked(HTTP11, "upgrade", "H2C"), ""},
		{"HTTP/2 first", asked(HTTP11, "upgrade", "h2c, websocket"), "websocket"},
		{"HTTP/2 last", asked(HTTP11, "upgrade", "websocket,\th2c"), "websocket"},
		{"HTTP/2 on a line of its own", asked(HTTP11, "upgrade", "websocket", "h2c"), "websocket"},
		{"HTTP/2 and nothing else", asked(HTTP11, "upgrade", "h2c,, H2c"), ""},
		{"two", asked(HTTP11, "upgrade", "a, b/1", "c"), "a, b/1, c"},
	} {
		if got := tt.r.Upgrade(); got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
