package profile

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"text/scanner"
)

// FromProto makes a profile of the services of a protobuf file. Only what routes
// need is looked at: package, service and rpc.
func FromProto(s Service, text []byte) (Profile, error) {
	p := protoFile{}
	p.Init(strings.NewReader(string(text)))
	p.Mode = scanner.ScanIdents | scanner.ScanInts | scanner.ScanFloats | scanner.ScanStrings | scanner.ScanComments | scanner.SkipComments
	p.Error = func(_ *scanner.Scanner, msg string) {
		if p.err == nil {
			p.err = errors.New(msg)
		}
	}
	routes, err := p.routes()
	if p.err != nil {
		err = p.err
	}
	if err != nil {
		return Profile{}, fmt.Errorf("line %d: %w", p.Pos().Line, err)
	}
	return s.profile(routes), nil
}

type protoFile struct {
	scanner.Scanner
	err error
}

// Scan is the next token. A string may be in single quotes, which text/scanner
// does not know.
func (p *protoFile) Scan() rune {
	tok := p.Scanner.Scan()
	if tok != '\'' {
		return tok
	}
	for r := p.Next(); r != '\''; r = p.Next() {
		switch r {
		case '\\':
			_ = p.Next()
		case '\n', scanner.EOF:
			p.Error(&p.Scanner, "a string does not end")
			return scanner.String
		}
	}
	return scanner.String
}

func (p *protoFile) routes() ([]Route, error) {
	var routes []Route
	pkg := ""
	for tok := p.Scan(); tok != scanner.EOF; tok = p.Scan() {
		switch word := p.TokenText(); {
		case tok == '{':
			if err := p.block(nil); err != nil {
				return nil, err
			}
		case tok == scanner.Ident && word == "package":
			name, err := p.name()
			if err != nil {
				return nil, err
			}
			pkg = name + "."
		case tok == scanner.Ident && word == "service":
			name, err := p.name()
			if err != nil {
				return nil, err
			}
			if p.TokenText() != "{" {
				return nil, fmt.Errorf("service %s does not begin with {", name)
			}
			err = p.block(func(method string) {
				path := "/" + pkg + name + "/" + method
				routes = append(routes, Route{Name: method, Condition: Condition{Method: http.MethodPost, PathRegex: regexp.QuoteMeta(path)}})
			})
			if err != nil {
				return nil, err
			}
		case tok == scanner.Ident: // another statement, up to its end or its block
			if err := p.statement(); err != nil {
				return nil, err
			}
		}
	}
	return routes, nil
}

// name reads a name with dots; the token behind it is read, too.
func (p *protoFile) name() (string, error) {
	var b strings.Builder
	for tok := p.Scan(); tok == scanner.Ident || tok == '.'; tok = p.Scan() {
		b.WriteString(p.TokenText())
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("a name is missing before %q", p.TokenText())
	}
	return b.String(), nil
}

// statement skips to a semicolon or past a block.
func (p *protoFile) statement() error {
	for tok := p.Scan(); tok != scanner.EOF; tok = p.Scan() {
		switch tok {
		case ';':
			return nil
		case '{':
			return p.block(nil)
		}
	}
	return errors.New("the file ends within a statement")
}

// block reads to the end of a block that has been opened, and tells the rpcs
// directly in it.
func (p *protoFile) block(rpc func(string)) error {
	depth := 1
	begins := true // of a statement
	for tok := p.Scan(); tok != scanner.EOF; tok = p.Scan() {
		switch {
		case tok == '{':
			depth++
			begins = true
		case tok == '}':
			if depth--; depth == 0 {
				return nil
			}
			begins = true
		case tok == ';':
			begins = true
		case begins && depth == 1 && rpc != nil && tok == scanner.Ident && p.TokenText() == "rpc":
			begins = false
			if p.Scan() != scanner.Ident {
				return fmt.Errorf("an rpc has no name, but %q", p.TokenText())
			}
			rpc(p.TokenText())
		default:
			begins = false
		}
	}
	return errors.New("the file ends within a block")
}
