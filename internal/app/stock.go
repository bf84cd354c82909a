package app

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"holdover"
	"holdover/mysqlpool"
)

// ReadStock reads lines of shop_id,item_id,group_id,available with that
// header. Every problem is named with its line.
func ReadStock(r io.Reader, maxRows int) ([]mysqlpool.StockRow, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = 4
	header, err := in.Read()
	if err != nil || !slices.Equal(header, []string{"shop_id", "item_id", "group_id", "available"}) {
		return nil, &holdover.InvalidError{Field: "stock file", Value: fmt.Sprint(header), Problem: "must begin with the line shop_id,item_id,group_id,available"}
	}
	var rows []mysqlpool.StockRow
	var errs []error
	seen := map[[3]int64]int{}
	for len(rows) <= maxRows && len(errs) < 20 {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return rows, errors.Join(errs...)
		}
		line, _ := in.FieldPos(0)
		if err != nil {
			return nil, &holdover.InvalidError{Field: "stock file", Problem: err.Error()}
		}
		var n [4]int64
		for i, field := range record {
			least := int64(1)
			if i == 3 {
				least = 0
			}
			if n[i], err = strconv.ParseInt(field, 10, 64); err != nil || n[i] < least || n[i] > 1<<53 {
				errs = append(errs, &holdover.InvalidError{Field: fmt.Sprintf("stock file line %d: %s", line, header[i]), Value: field, Problem: fmt.Sprintf("must be a number from %d to 2^53", least)})
			}
		}
		key := [3]int64{n[0], n[1], n[2]}
		if first, twice := seen[key]; twice {
			errs = append(errs, &holdover.InvalidError{Field: fmt.Sprintf("stock file line %d", line), Problem: fmt.Sprintf("repeats line %d: one line for each item and location", first)})
		}
		seen[key] = line
		rows = append(rows, mysqlpool.StockRow{Shop: n[0], Item: n[1], Group: n[2], Available: n[3]})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return nil, &holdover.InvalidError{Field: "stock file", Problem: fmt.Sprintf("has more than %d lines", maxRows)}
}

// Imported says what ImportStock did.
type Imported struct {
	Pod      string `json:"pod"`
	Rows     int    `json:"rows"`     // in the file, of this pod's shops
	Added    int    `json:"added"`    // new in the ledger
	Counters int    `json:"counters"` // new in Redis
}

// ImportStock adds rows to the pod's ledger and makes the missing counters:
// the ledger's sum over locations less the units in Redis's live holds. It
// refuses, with nothing written, a row whose ledger value differs, and a
// counter that is there and does not add up with the rows.
func ImportStock(ctx context.Context, s *Stores, rows []mysqlpool.StockRow) (Imported, error) {
	done := Imported{Pod: s.Name, Rows: len(rows)}
	byItem := map[[2]int64][]mysqlpool.StockRow{}
	for _, row := range rows {
		key := [2]int64{row.Shop, row.Item}
		byItem[key] = append(byItem[key], row)
	}
	held, err := heldInRedis(ctx, s)
	if err != nil {
		return done, err
	}
	type counter struct{ sum int64 }
	missing := map[[2]int64]counter{}
	for key, itemRows := range byItem {
		sum, fresh, err := sumWith(ctx, s, key, itemRows)
		if err != nil {
			return done, err
		}
		counters, err := s.Redis.Counters(ctx, key[0], []int64{key[1]})
		switch {
		case errors.Is(err, holdover.ErrNotLoaded):
			missing[key] = counter{sum}
		case err != nil:
			return done, err
		case fresh && counters[0] != sum-held[key]:
			return done, &holdover.InvalidError{Field: "stock", Problem: fmt.Sprintf(
				"shop %d item %d: redis has a counter of %d, the ledger would have %d with %d units held: they must add up before the item is imported",
				key[0], key[1], counters[0], sum, held[key])}
		}
	}
	if done.Added, err = s.MySQL.ImportStock(ctx, rows); err != nil {
		return done, err
	}
	for key, c := range missing {
		loaded, err := s.Redis.Load(ctx, key[0], map[int64]int64{key[1]: c.sum - held[key]}, false)
		if err != nil {
			return done, fmt.Errorf("the ledger is imported, the counter of shop %d item %d is not: import again: %w", key[0], key[1], err)
		}
		done.Counters += loaded
	}
	return done, nil
}

// sumWith adds up an item's ledger as it will be with rows; fresh tells whether
// a row is new.
func sumWith(ctx context.Context, s *Stores, key [2]int64, rows []mysqlpool.StockRow) (sum int64, fresh bool, err error) {
	stocks, err := s.MySQL.Probe(ctx, key[0], []int64{key[1]})
	if err != nil && !errors.Is(err, holdover.ErrNotLoaded) {
		return 0, false, err
	}
	known := map[int64]bool{}
	for _, stock := range stocks {
		sum += stock.Available
		known[stock.Group] = true
	}
	for _, row := range rows {
		if !known[row.Group] {
			sum += row.Available
			fresh = true
		}
	}
	return sum, fresh, nil
}

// heldInRedis adds up the live holds by shop and item.
func heldInRedis(ctx context.Context, s *Stores) (map[[2]int64]int64, error) {
	held, seen := map[[2]int64]int64{}, map[holdover.Token]bool{}
	for cursor := uint64(0); ; {
		holds, next, err := s.Redis.LiveHolds(ctx, cursor, 500)
		if err != nil {
			return nil, err
		}
		for _, h := range holds {
			if seen[h.Token] { // a cursor may show one twice
				continue
			}
			seen[h.Token] = true
			for _, line := range h.Lines {
				held[[2]int64{h.Shop, line.Item}] += line.Quantity
			}
		}
		if cursor = next; cursor == 0 {
			return held, nil
		}
	}
}

// SplitByPod gives each row to the pod that serves its shop; a row of no pod is
// an error.
func SplitByPod(c Config, rows []mysqlpool.StockRow) (map[string][]mysqlpool.StockRow, error) {
	byPod := map[string][]mysqlpool.StockRow{}
	for _, row := range rows {
		owner := ""
		for _, p := range c.Pods {
			ranges, err := parseShops(p.Shops)
			if err != nil {
				return nil, err
			}
			if serves(ranges, row.Shop) {
				owner = p.Name
			}
		}
		if owner == "" {
			return nil, &holdover.InvalidError{Field: "stock file: shop_id", Value: fmt.Sprint(row.Shop), Problem: "is served by no configured pod"}
		}
		byPod[owner] = append(byPod[owner], row)
	}
	return byPod, nil
}

func serves(ranges []shopRange, shop int64) bool {
	return slices.ContainsFunc(ranges, func(r shopRange) bool { return r.from <= shop && shop <= r.to })
}
