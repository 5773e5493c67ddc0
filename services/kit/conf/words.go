package conf

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// help lists every setting with its flag, variable, default and meaning.
func help(fields []field) string {
	var b strings.Builder
	b.WriteString("Settings (a flag wins over its variable, a variable over the default):\n")
	for _, f := range fields {
		fmt.Fprintf(&b, "\n  -%s %s\n", f.flag(), placeholder(f.value))
		if f.help != "" {
			fmt.Fprintf(&b, "        %s\n", f.help)
		}
		fmt.Fprintf(&b, "        %s", f.env())
		if d := display(f.value); d != "" {
			fmt.Fprintf(&b, ", default %s", d)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// placeholder stands for the value in help.
func placeholder(v reflect.Value) string {
	t := v.Type()
	switch {
	case isText(v):
		return strings.ToUpper(t.Name())
	case t == durationType:
		return "DURATION"
	case t.Kind() == reflect.Bool:
		return ""
	case t.Kind() == reflect.Slice:
		return "A,B,…"
	case t.Kind() == reflect.String:
		return "TEXT"
	default:
		return "NUMBER"
	}
}

// display is a default as one would type it; "" for a zero value.
func display(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	if v.Kind() != reflect.Slice || isText(v) {
		if v.Kind() == reflect.String && !isText(v) {
			return quote(v.String())
		}
		return fmt.Sprint(v.Interface())
	}
	items := make([]string, v.Len())
	for i := range items {
		items[i] = fmt.Sprint(v.Index(i).Interface())
	}
	return strings.Join(items, ",")
}

// kindName is a type in a person's words.
func kindName(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration (like 1m30s)"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice:
		return "a list with commas"
	case t.Kind() == reflect.String, t.Kind() == reflect.Struct, t.Kind() == reflect.Array:
		return "valid"
	default:
		return "a number in range"
	}
}

// quote shortens and quotes what a person typed.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

// didYouMean suggests the known name nearest to a wrong one, if one is near.
func didYouMean(name string, known []string) string {
	if len(name) > 100 {
		return ""
	}
	best, at := "", 3 // more than two edits is another word, not a slip
	for _, k := range known {
		if d := distance(name, k); d < at {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the number of one-letter edits between a and b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
