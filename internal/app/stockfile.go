package app

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"holdover"
	"holdover/mysqlpool"
)

// Bounds of a stock file.
const (
	maxStockBytes  = 256 << 20
	maxStockErrors = 20 // named at once
	maxStock       = 1 << 53
)

var stockHeader = []string{"shop_id", "item_id", "group_id", "available"}

// ReadStock reads lines of shop_id,item_id,group_id,available with that
// header. Every problem is named with its line, the first twenty of them. The
// errors match holdover.ErrInvalid.
func ReadStock(r io.Reader, maxRows int) ([]mysqlpool.StockRow, error) {
	bounded := &io.LimitedReader{R: r, N: maxStockBytes}
	text := bufio.NewReader(bounded)
	if mark, err := text.Peek(3); err == nil && bytes.Equal(mark, []byte("\ufeff")) {
		_, _ = text.Discard(3) // what a spreadsheet puts first
	}
	in := csv.NewReader(text)
	in.FieldsPerRecord = -1 // checked below, so that the lines behind are looked at too
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, &holdover.InvalidError{Field: "stock file", Problem: "can't be read: " + err.Error()}
	}
	if !slices.Equal(header, stockHeader) {
		return nil, &holdover.InvalidError{Field: "stock file line 1:", Value: clip(fmt.Sprint(header)), Problem: "must be shop_id,item_id,group_id,available"}
	}
	var rows []mysqlpool.StockRow
	var errs []error
	seen := map[[3]int64]int{}
	for {
		record, err := in.Read()
		line := 0
		if len(record) > 0 {
			line, _ = in.FieldPos(0)
		}
		wrong := func(where, value, problem string) {
			errs = append(errs, &holdover.InvalidError{Field: fmt.Sprintf("stock file line %d:", line) + where, Value: clip(value), Problem: problem})
		}
		switch {
		case errors.Is(err, io.EOF) && bounded.N <= 0:
			return nil, &holdover.InvalidError{Field: "stock file", Problem: fmt.Sprintf("has more than %d bytes: split it", maxStockBytes)}
		case errors.Is(err, io.EOF) && len(rows) == 0 && len(errs) == 0:
			return nil, &holdover.InvalidError{Field: "stock file", Problem: "has no line of stock"}
		case errors.Is(err, io.EOF):
			return rows, errors.Join(errs...)
		case err != nil:
			return nil, errors.Join(append(errs, &holdover.InvalidError{Field: "stock file", Problem: "can't be read: " + err.Error()})...)
		case len(errs) >= maxStockErrors:
			return nil, errors.Join(append(errs, &holdover.InvalidError{Field: "stock file", Problem: "may have more that is wrong: reading stopped"})...)
		case len(rows) >= maxRows:
			return nil, &holdover.InvalidError{Field: "stock file", Problem: fmt.Sprintf("has more than %d lines of stock: split it", maxRows)}
		case len(record) != len(stockHeader):
			wrong("", fmt.Sprint(record), fmt.Sprintf("must have %d fields, has %d", len(stockHeader), len(record)))
			continue
		}
		var n [4]int64
		bad := false
		for i, field := range record {
			least := int64(1)
			if i == 3 {
				least = 0
			}
			if n[i], err = strconv.ParseInt(field, 10, 64); err != nil || n[i] < least || n[i] > maxStock {
				wrong(" "+stockHeader[i], field, fmt.Sprintf("must be a whole number from %d to 2^53", least))
				bad = true
			}
		}
		if bad {
			continue
		}
		key := [3]int64{n[0], n[1], n[2]}
		if first, twice := seen[key]; twice {
			wrong("", "", fmt.Sprintf("repeats line %d: one line for each item and location", first))
			continue
		}
		seen[key] = line
		rows = append(rows, mysqlpool.StockRow{Shop: n[0], Item: n[1], Group: n[2], Available: n[3]})
	}
}

// SplitByPod gives each row to the pod that serves its shop; a row of no pod is
// an error.
func SplitByPod(c Config, rows []mysqlpool.StockRow) (map[string][]mysqlpool.StockRow, error) {
	byPod, owners := map[string][]mysqlpool.StockRow{}, map[int64]string{}
	var errs []error
	for _, row := range rows {
		owner, known := owners[row.Shop]
		if !known {
			for _, p := range c.Pods {
				ranges, err := parseShops(p.Shops)
				if err != nil {
					return nil, err
				}
				if serves(ranges, row.Shop) {
					owner = p.Name
				}
			}
			owners[row.Shop] = owner
			if owner == "" && len(errs) < maxStockErrors {
				errs = append(errs, &holdover.InvalidError{Field: "stock file: shop_id", Value: fmt.Sprint(row.Shop), Problem: "is served by no configured pod"})
			}
		}
		byPod[owner] = append(byPod[owner], row)
	}
	return byPod, errors.Join(errs...)
}

func serves(ranges []shopRange, shop int64) bool {
	return slices.ContainsFunc(ranges, func(r shopRange) bool { return r.from <= shop && shop <= r.to })
}
