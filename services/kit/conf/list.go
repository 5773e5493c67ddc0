package conf

import "reflect"

// Setting is one setting of a struct, for a program that offers its flags in a
// way of its own and hands what was given to LoadFrom.
type Setting struct {
	Flag    string // without a dash
	Env     string
	Help    string
	Default string // as one would type it; "" for a zero value
	Switch  bool   // it may stand without a value
}

// List names the settings of a struct, in the order of its fields.
func List[T any](defaults T) ([]Setting, error) {
	fields, _, err := collect(reflect.ValueOf(&defaults).Elem())
	if err != nil {
		return nil, err
	}
	list := make([]Setting, len(fields))
	for i, f := range fields {
		list[i] = Setting{Flag: f.flag(), Env: f.env(), Help: f.help, Default: display(f.value), Switch: f.isSwitch()}
	}
	return list, nil
}
