// Package plain makes what came from elsewhere fit for a terminal: nothing in it steers the
// terminal, turns its text's direction, breaks a table or fills the screen.
package plain

import "strings"

// How many characters are shown of a name, and of anything else.
const (
	longestName = 300
	longest     = 4000
)

// Name is a name, or a short reason, on one line.
func Name(text string) string { return clean(text, false, longestName) }

// Line is a sentence on one line.
func Line(text string) string { return clean(text, false, longest) }

// Text is what may have several lines, such as an error.
func Text(text string) string { return clean(text, true, longest) }

func clean(text string, lines bool, most int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' && lines:
			return r
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			return '?' // control characters, and marks that turn the text's direction
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
