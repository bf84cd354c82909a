package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds of a basket file: over them it is refused, with the line's number.
const (
	maxBasketLine  = 64 << 10
	maxBaskets     = 1_000_000
	maxBasketItems = 200
)

// Basket is what one buyer puts into a cart: items, each at most once.
type Basket struct {
	Cart  int64   `json:"cart"`
	Items []int64 `json:"items"`
}

// ReadBaskets reads JSON lines of the form {"cart":1,"items":[12,13]}. It is
// strict: an unknown field, a missing or repeated item, an item that is not
// positive, an empty basket or an overlong line is an error that names the
// line. An input without any basket is an error too. Blank lines are skipped.
func ReadBaskets(r io.Reader) ([]Basket, error) {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 4096), maxBasketLine)
	var all []Basket
	line := 0
	for scan.Scan() {
		line++
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		b, err := parseBasket(text)
		if err != nil {
			return nil, fmt.Errorf("baskets: line %d: %w", line, err)
		}
		if len(all) == maxBaskets {
			return nil, fmt.Errorf("baskets: line %d: more than the limit of %d baskets", line, maxBaskets)
		}
		all = append(all, b)
	}
	if err := scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("baskets: line %d: longer than the limit of %d bytes", line+1, maxBasketLine)
	} else if err != nil {
		return nil, fmt.Errorf("baskets: after line %d: %w", line, err)
	}
	if len(all) == 0 {
		return nil, errors.New(`baskets: the input has no basket: want lines like {"cart":1,"items":[12,13]}`)
	}
	return all, nil
}

func parseBasket(text []byte) (Basket, error) {
	var b Basket
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		return b, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return b, errors.New("has something behind the basket")
	}
	if len(b.Items) == 0 {
		return b, errors.New("has no items")
	}
	if len(b.Items) > maxBasketItems {
		return b, fmt.Errorf("has %d items, more than the limit of %d", len(b.Items), maxBasketItems)
	}
	seen := make(map[int64]bool, len(b.Items))
	for _, item := range b.Items {
		if item <= 0 {
			return b, fmt.Errorf("item %d is not a positive number", item)
		}
		if seen[item] {
			return b, fmt.Errorf("item %d is there twice", item)
		}
		seen[item] = true
	}
	return b, nil
}
