package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxDepth is more nesting than any body of this API needs.
const maxDepth = 16

// unmarshalStrict is encoding/json without what it forgives. huma calls it
// twice: into an any, which it validates field by field, then into the struct,
// which is used only when the first was fine. So all strictness is in the first.
func unmarshalStrict(data []byte, v any) error {
	out, ok := v.(*any)
	if !ok {
		return json.Unmarshal(data, v)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	parsed, err := parseValue(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("something follows the JSON value at byte %d", d.InputOffset())
	}
	*out = parsed
	return nil
}

func parseValue(d *json.Decoder, depth int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d levels", maxDepth)
	}
	switch t := t.(type) {
	case json.Number:
		// A float64 would change large item numbers silently; a number that is
		// no int64 stays a json.Number, which no schema here accepts.
		if n, err := strconv.ParseInt(t.String(), 10, 64); err == nil {
			return n, nil
		}
		return t, nil
	case json.Delim:
		if t == '[' {
			return parseArray(d, depth)
		}
		return parseObject(d, depth)
	default:
		return t, nil
	}
}

func parseArray(d *json.Decoder, depth int) (any, error) {
	list := []any{}
	for d.More() {
		v, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := d.Token()
	return list, err
}

func parseObject(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		key, _ := t.(string)
		if !plainKey(key) {
			// Both huma and encoding/json match names without case. Quoted, such
			// a name matches none and is reported as unexpected.
			key = strconv.Quote(clip(key))
		}
		if _, ok := object[key]; ok {
			return nil, fmt.Errorf("field %q appears twice", clip(key))
		}
		if object[key], err = parseValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

func plainKey(key string) bool {
	for _, r := range key {
		if r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return key != ""
}
