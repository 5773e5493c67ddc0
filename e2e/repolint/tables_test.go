package repolint

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	tableFile = "bus/table.go"
	goldenDir = "bus/testdata/tables"
	tableEnum = "proto/weft/bus/v1/log.proto"
)

// tableRow is one element of bus.Tables, as its source says it.
type tableRow struct{ enum, name, owner string }

// tables reads the literal Tables: number, name, owner, key, message.
func (r *repo) tables() []tableRow {
	i := slices.IndexFunc(r.gos, func(g *goFile) bool { return g.path == tableFile })
	if i < 0 {
		return nil
	}
	var rows []tableRow
	ast.Inspect(r.gos[i].ast, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "Tables" || len(spec.Values) != 1 {
			return true
		}
		list, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok {
			return false
		}
		for _, e := range list.Elts {
			rows = append(rows, readTable(e))
		}
		return false
	})
	return rows
}

func readTable(e ast.Expr) tableRow {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return tableRow{}
	}
	field := func(i int, name string) ast.Expr {
		if len(lit.Elts) > i {
			if _, keyed := lit.Elts[i].(*ast.KeyValueExpr); !keyed {
				return lit.Elts[i]
			}
		}
		for _, e := range lit.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if id, ok := kv.Key.(*ast.Ident); ok && id.Name == name {
					return kv.Value
				}
			}
		}
		return nil
	}
	row := tableRow{name: literal(field(1, "Name")), owner: literal(field(2, "Owner"))}
	if sel, ok := field(0, "Table").(*ast.SelectorExpr); ok {
		row.enum = strings.TrimPrefix(sel.Sel.Name, "Table_")
	}
	return row
}

// literal is the value of a string literal, or "".
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}

var enumValue = regexp.MustCompile(`(?m)^\s+(TABLE_\w+) = [1-9]`)

func tableRules(r *repo) (int, []problem) {
	var wrong []problem
	add := func(where, what, mend string) { wrong = append(wrong, problem{where, what, mend}) }
	rows := r.tables()
	goldens := map[string]bool{}
	for _, row := range rows {
		if row.name == "" || row.enum == "" {
			add(tableFile, "a table has no name or number ("+row.enum+row.name+")", "write both as literals in Tables")
			continue
		}
		if !r.exists(path.Join("services", row.owner)) || row.owner == "" {
			add(tableFile, "table "+row.name+" is owned by "+strconv.Quote(row.owner), "name the one service that writes it")
		}
		golden := path.Join(goldenDir, row.name+".txtar")
		goldens[golden] = true
		if _, ok := r.file(golden); !ok {
			add(golden, "table "+row.name+" has no golden", "write a row and its bytes there: what replicas of two versions must agree on")
		}
	}
	for _, f := range r.files {
		if path.Dir(f.path) == goldenDir && !goldens[f.path] {
			add(f.path, "is the golden of no table", "remove it, or give the table a row in "+tableFile)
		}
	}
	proto, _ := r.file(tableEnum)
	values := enumValue.FindAllSubmatch(proto.data, -1)
	if len(rows) > 0 && len(values) == 0 {
		add(tableEnum, "no value of enum Table was found", "teach tableRules where it is")
	}
	for _, m := range values {
		if name := string(m[1]); !slices.ContainsFunc(rows, func(t tableRow) bool { return t.enum == name }) {
			add(tableEnum, name+" is not in bus.Tables", "add its row to "+tableFile+", or reserve the number")
		}
	}
	return len(rows), wrong
}
