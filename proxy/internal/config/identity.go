package config

import (
	"net/url"
	"strings"
	"time"
)

func (r *reader) identity() Identity {
	if r.values["IDENTITY_DISABLED"] != "" {
		r.fail("IDENTITY_DISABLED", "identity is mandatory")
	}
	id := Identity{
		MinRefresh: get(r, "IDENTITY_MIN_REFRESH", 10*time.Second, ParseDuration),
		MaxRefresh: get(r, "IDENTITY_MAX_REFRESH", 24*time.Hour, ParseDuration),
		SPIRE:      r.spire(),
	}
	if id.MinRefresh <= 0 || id.MinRefresh > id.MaxRefresh {
		r.fail("IDENTITY_MIN_REFRESH", "want 0 < MIN <= MAX, got %v and %v", id.MinRefresh, id.MaxRefresh)
	}
	if id.SPIRE.Socket != "" { // which has key, anchors and name
		id.Name = r.required("IDENTITY_SERVER_ID", parseSPIFFE)
		id.ServerName = r.required("IDENTITY_SERVER_NAME", parseDNSName)
		return id
	}
	id.Svc = r.svc("IDENTITY_SVC")
	id.Dir = r.required("IDENTITY_DIR", nonEmpty)
	id.Anchors = r.required("IDENTITY_TRUST_ANCHORS", nonEmpty)
	id.TokenFile = r.required("IDENTITY_TOKEN_FILE", nonEmpty)
	// The old name goes before the new ones.
	if r.has("IDENTITY_LOCAL_NAME") || !r.has("IDENTITY_SERVER_ID") && !r.has("IDENTITY_SERVER_NAME") {
		id.Name = r.required("IDENTITY_LOCAL_NAME", parseDNSName)
		id.ServerName = id.Name
		return id
	}
	id.Name = r.required("IDENTITY_SERVER_ID", parseIdentity)
	id.ServerName = r.required("IDENTITY_SERVER_NAME", parseDNSName)
	if id.Name != id.ServerName {
		r.fail("IDENTITY_SERVER_ID", "must equal IDENTITY_SERVER_NAME unless SPIRE is used")
	}
	return id
}

// spire reads the new name of the socket, else the old one. The names of its
// backoff have the prefix twice, in Linkerd as here.
func (r *reader) spire() SPIRE {
	s := SPIRE{Backoff: r.backoff("LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF", Backoff{100 * time.Millisecond, time.Second, 0.1})}
	for _, name := range []string{"IDENTITY_SPIRE_WORKLOAD_API_ADDRESS", "IDENTITY_SPIRE_SOCKET"} {
		if r.has(name) {
			s.Socket = get(r, name, "", parseSocket)
			if name == "IDENTITY_SPIRE_SOCKET" {
				r.warn(name, "is an old name, IDENTITY_SPIRE_WORKLOAD_API_ADDRESS is the new one")
			}
			break
		}
	}
	return s
}

func parseSocket(s string) (string, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(s), "unix:"), "//")
	return nonEmpty(path)
}

func parseSPIFFE(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "spiffe" || u.Host == "" {
		return "", errNotSPIFFE
	}
	return s, nil
}
