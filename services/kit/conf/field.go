package conf

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// path is the chain of field names that leads to a setting.
type path []string

func (p path) child(name string) path {
	return append(slices.Clip(p), name)
}

// flag is the setting's flag, without a dash.
func (p path) flag() string {
	words := make([]string, len(p))
	for i, name := range p {
		words[i] = kebab(name)
	}
	return strings.Join(words, ".")
}

// env is the setting's environment variable.
func (p path) env() string {
	return Prefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(p.flag()))
}

// kebab writes a Go field name with dashes: ClusterDomain becomes
// cluster-domain, TLSCert tls-cert, ClusterIPs cluster-ips, H2Window h2-window.
func kebab(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && startsWord(runes, i) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// startsWord tells whether the capital at i begins a word: it follows a small
// letter or a digit, or it ends a run of capitals and a small letter follows.
// A plural s after an acronym (IPs) belongs to the acronym.
func startsWord(runes []rune, i int) bool {
	if !unicode.IsUpper(runes[i-1]) {
		return true
	}
	if i+1 >= len(runes) || !unicode.IsLower(runes[i+1]) {
		return false
	}
	plural := runes[i+1] == 's' && (i+2 >= len(runes) || unicode.IsUpper(runes[i+2]))
	return !plural
}

// field is one setting: a place in the struct that text can fill.
type field struct {
	path  path
	help  string
	value reflect.Value
}

func (f field) flag() string { return f.path.flag() }
func (f field) env() string  { return f.path.env() }

// isSwitch tells whether the flag may stand alone, without a value.
func (f field) isSwitch() bool {
	return f.value.Kind() == reflect.Bool && !isText(f.value)
}

// set parses text into the field and returns what is wrong with it, or "".
func (f field) set(text string) string {
	if err := parse(f.value, text); err != nil {
		return fmt.Sprintf("%s is not %s: %v", quote(text), kindName(f.value.Type()), err)
	}
	return ""
}

// group is a struct of settings; the whole configuration is the group with an empty path.
type group struct {
	path  path
	help  string
	value reflect.Value
}

// collect lists the settings and structs below v, in the order of the fields.
// Fields that text cannot fill by their nature (functions, interfaces,
// channels), unexported ones and those tagged conf:"-" are the code's own.
func collect(v reflect.Value) ([]field, []group, error) {
	if v.Kind() != reflect.Struct {
		return nil, nil, fmt.Errorf("settings of type %s: want a struct", v.Type())
	}
	var fields []field
	var groups []group
	var walk func(g group) error
	walk = func(g group) error {
		groups = append(groups, g)
		for i := range g.value.NumField() {
			sf, fv := g.value.Type().Field(i), g.value.Field(i)
			if !sf.IsExported() || sf.Tag.Get("conf") == "-" {
				continue
			}
			p := g.path.child(sf.Name)
			if sf.Anonymous {
				p = g.path
			}
			switch kind := fv.Kind(); {
			case kind == reflect.Func, kind == reflect.Interface, kind == reflect.Chan:
			case isText(fv), parsable(fv.Type()):
				fields = append(fields, field{path: p, help: sf.Tag.Get("help"), value: fv})
			case kind == reflect.Struct:
				if err := walk(group{path: p, help: sf.Tag.Get("help"), value: fv}); err != nil {
					return err
				}
			default:
				return fmt.Errorf("setting -%s: a field of type %s cannot be set from text", p.flag(), fv.Type())
			}
		}
		return nil
	}
	if err := walk(group{value: v}); err != nil {
		return nil, nil, err
	}
	return fields, groups, nil
}

var durationType = reflect.TypeFor[time.Duration]()

// isText tells whether the value parses itself.
func isText(v reflect.Value) bool {
	return v.CanAddr() && v.Addr().Type().Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// parsable tells whether parse knows the type.
func parsable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Slice:
		e := t.Elem()
		return e.Kind() != reflect.Slice && (parsable(e) || reflect.PointerTo(e).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()))
	default:
		return false
	}
}

// parse fills v from text. v keeps its value if the text is wrong.
func parse(v reflect.Value, text string) error {
	if isText(v) {
		fresh := reflect.New(v.Type())
		u, _ := reflect.TypeAssert[encoding.TextUnmarshaler](fresh)
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		v.Set(fresh.Elem())
		return nil
	}
	if v.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return plain(err)
		}
		v.SetInt(int64(d))
		return nil
	}
	var err error
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var b bool
		if b, err = strconv.ParseBool(text); err == nil {
			v.SetBool(b)
		}
	case reflect.Float32, reflect.Float64:
		var n float64
		if n, err = strconv.ParseFloat(text, v.Type().Bits()); err == nil {
			v.SetFloat(n)
		}
	case reflect.Slice:
		return parseList(v, text)
	default:
		if v.CanInt() {
			var n int64
			if n, err = strconv.ParseInt(text, 0, v.Type().Bits()); err == nil {
				v.SetInt(n)
			}
		} else {
			var n uint64
			if n, err = strconv.ParseUint(text, 0, v.Type().Bits()); err == nil {
				v.SetUint(n)
			}
		}
	}
	return plain(err)
}

// parseList fills a slice from items between commas; spaces around items and
// empty items are dropped, so that "" is the empty list.
func parseList(v reflect.Value, text string) error {
	list := reflect.MakeSlice(v.Type(), 0, strings.Count(text, ",")+1)
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		if err := parse(e, item); err != nil {
			return fmt.Errorf("item %q: %w", item, err)
		}
		list = reflect.Append(list, e)
	}
	v.Set(list)
	return nil
}

// plain strips strconv's and time's function names off an error.
func plain(err error) error {
	if err == nil {
		return nil
	}
	if n, ok := errors.AsType[*strconv.NumError](err); ok {
		return n.Err
	}
	return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "time: "))
}
