package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"holdover/internal/app"
)

// decode reads one strict YAML document. Its errors name line and column and
// never show the text around them, which may hold a password.
func decode(text []byte, c *app.Config) error {
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	err := d.Decode(c)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case err != nil:
		return placed(err, text)
	}
	var more any
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return errors.New("something follows the first document: only one is read")
	}
	return nil
}

// badDuration ends what time.ParseDuration says; yaml passes it on without a place.
var badDuration = regexp.MustCompile(`duration "(.*)"$`)

func placed(err error, text []byte) error {
	var wrongType *yaml.TypeError
	if errors.As(err, &wrongType) {
		if wrongType.DstType == reflect.TypeFor[time.Duration]() {
			return at(wrongType.Token, fmt.Sprintf("%q must be a duration with its unit, like 2s or 15m", wrongType.Token.Value))
		}
		return at(wrongType.Token, fmt.Sprintf("want %s here, found %s", wrongType.DstType.Kind(), wrongType.SrcType.Kind()))
	}
	if found := badDuration.FindStringSubmatch(err.Error()); found != nil {
		if file, parseErr := parser.ParseBytes(text, 0); parseErr == nil {
			scan := &scalar{value: found[1]}
			for _, doc := range file.Docs {
				ast.Walk(scan, doc)
			}
			if scan.token != nil {
				return at(scan.token, fmt.Sprintf("%q must be a duration with its unit, like 2s or 15m", found[1]))
			}
		}
	}
	var known yaml.Error
	if errors.As(err, &known) && known.GetToken() != nil {
		return at(known.GetToken(), known.GetMessage())
	}
	return errors.New(yaml.FormatError(err, false, false))
}

func at(t *token.Token, problem string) error {
	return fmt.Errorf("line %d, column %d: %s", t.Position.Line, t.Position.Column, problem)
}

// scalar finds the first string of a value.
type scalar struct {
	value string
	token *token.Token
}

// Visit is how ast.Walk calls.
func (s *scalar) Visit(n ast.Node) ast.Visitor {
	if str, ok := n.(*ast.StringNode); ok && s.token == nil && str.Value == s.value {
		s.token = str.GetToken()
	}
	return s
}
