package bus

import "testing"

func TestInboxOf(t *testing.T) {
	for name, want := range map[string]string{
		"destination": "_INBOX.destination",
		"TestA/b c":   "_INBOX",
		"a.>":         "_INBOX",
		"":            "_INBOX",
	} {
		if got := inboxOf(name); got != want {
			t.Errorf("inboxOf(%q) = %q, want %q", name, got, want)
		}
	}
}
