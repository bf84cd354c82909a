package rollout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a flag file.
const maxDepth = 40

// FileError says what is wrong with a flag file, and where.
type FileError struct {
	Place   string // a path like flags.holdover-stage.targeting.if[0]; or line and column
	Problem string
}

func (e *FileError) Error() string { return e.Place + ": " + e.Problem }

func wrong(place, format string, args ...any) error {
	return &FileError{Place: place, Problem: fmt.Sprintf(format, args...)}
}

// node is a JSON value that knows its place. The standard decoder would take
// the last of two equal keys, which is why the tree is built from tokens.
type node struct {
	place   string
	value   any      // string, json.Number, bool or nil of a scalar
	members []member // of an object, in order
	items   []node   // of an array
	kind    kind
}

type member struct {
	key string
	node
}

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}

func (k kind) String() string { return kindNames[k] }

func (n node) text() (string, bool) {
	s, ok := n.value.(string)
	return s, ok
}

// parseTree reads exactly one JSON value.
func parseTree(data []byte) (node, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return node{}, wrong("line 1, column 1", "the file is empty")
	}
	if !utf8.Valid(data) {
		return node{}, wrong("the file", "is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	root, err := parseNode(dec, "", 0)
	if err == nil {
		if _, terr := dec.Token(); !errors.Is(terr, io.EOF) {
			return node{}, wrong(lineAndColumn(data, dec.InputOffset()), "something follows the end of the object")
		}
		return root, nil
	}
	var placed *FileError
	if errors.As(err, &placed) {
		return node{}, err
	}
	at := dec.InputOffset()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		at = syntax.Offset
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return node{}, wrong(lineAndColumn(data, int64(len(data))), "the file ends in the middle: it may be half written")
	}
	return node{}, wrong(lineAndColumn(data, at), "is not JSON: %v", err)
}

func parseNode(dec *json.Decoder, place string, depth int) (node, error) {
	if depth > maxDepth {
		return node{}, wrong(place, "is nested deeper than %d", maxDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return node{}, err
	}
	switch v := token.(type) {
	case nil:
		return node{place: place, kind: kindNull}, nil
	case bool:
		return node{place: place, kind: kindBool, value: v}, nil
	case json.Number:
		return node{place: place, kind: kindNumber, value: v}, nil
	case string:
		return node{place: place, kind: kindString, value: v}, nil
	case json.Delim:
		if v == '[' {
			return parseArray(dec, place, depth)
		}
		if v == '{' {
			return parseObject(dec, place, depth)
		}
	}
	return node{}, wrong(place, "unexpected %v", token)
}

func parseArray(dec *json.Decoder, place string, depth int) (node, error) {
	n := node{place: place, kind: kindArray}
	for dec.More() {
		item, err := parseNode(dec, fmt.Sprintf("%s[%d]", place, len(n.items)), depth+1)
		if err != nil {
			return node{}, err
		}
		n.items = append(n.items, item)
	}
	_, err := dec.Token() // the closing bracket
	return n, err
}

func parseObject(dec *json.Decoder, place string, depth int) (node, error) {
	n := node{place: place, kind: kindObject}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return node{}, err
		}
		key, ok := token.(string)
		if !ok {
			return node{}, wrong(place, "unexpected %v where a key should be", token)
		}
		at := join(place, key)
		if seen[key] {
			return node{}, wrong(at, "is there twice")
		}
		seen[key] = true
		value, err := parseNode(dec, at, depth+1)
		if err != nil {
			return node{}, err
		}
		n.members = append(n.members, member{key, value})
	}
	_, err := dec.Token() // the closing brace
	return n, err
}

// join extends a place by a key; a key that would be hard to read in a path is quoted.
func join(place, key string) string {
	if key == "" || len(key) > 64 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == '.' || r == '[' || r == '"' || r == 0x7f }) {
		key = quote(key)
	}
	if place == "" {
		return key
	}
	return place + "." + key
}

// quote shows a text from the file in a message, cut to a readable length.
func quote(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:61], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}

func lineAndColumn(data []byte, offset int64) string {
	before := data[:min(max(offset, 0), int64(len(data)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}
