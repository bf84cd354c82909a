package workload

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"holdover"
)

// RedisDo sends one command to the pod's Redis and returns the reply as
// strings, int64s, nils and slices of them. With go-redis:
//
//	func(ctx context.Context, args ...any) (any, error) { return client.Do(ctx, args...).Result() }
type RedisDo func(ctx context.Context, args ...any) (any, error)

// luaReadHolds returns state, shop, lines and the part that is being claimed of
// many holds in one round trip.
const luaReadHolds = `
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = redis.call('HMGET', key, 'state', 'shop', 'lines', 'claimed')
end
return found`

const redisPage = 500

// readRedis adds the pod's holds and counters to r. The hold keys are found by
// a scan over all keys, not by the product's own index.
func readRedis(ctx context.Context, do RedisDo, c AuditConfig, r *Reading) error {
	r.HasRedis = true
	r.Redis = map[holdover.Token]StoredHold{}
	r.Counters = map[holdover.Stock]int64{}
	prefix := c.RedisPrefix + "hold:"
	cursor := "0"
	for {
		reply, err := do(ctx, "SCAN", cursor, "MATCH", escapeGlob(prefix)+"*", "COUNT", strconv.Itoa(redisPage))
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		page, ok := reply.([]any)
		if !ok || len(page) != 2 {
			return fmt.Errorf("scan: an unexpected reply of type %T", reply)
		}
		keys, _ := page[1].([]any)
		if err := readHolds(ctx, do, prefix, keys, r); err != nil {
			return err
		}
		if cursor = fmt.Sprint(page[0]); cursor == "0" {
			break
		}
	}
	return readCounters(ctx, do, c, r)
}

func readHolds(ctx context.Context, do RedisDo, prefix string, keys []any, r *Reading) error {
	if len(keys) == 0 {
		return nil
	}
	reply, err := do(ctx, append([]any{"EVAL", luaReadHolds, strconv.Itoa(len(keys))}, keys...)...)
	if err != nil {
		return fmt.Errorf("read %d holds: %w", len(keys), err)
	}
	found, _ := reply.([]any)
	if len(found) != len(keys) {
		return fmt.Errorf("read %d holds: an unexpected reply of %d", len(keys), len(found))
	}
	for i, key := range keys {
		fields, _ := found[i].([]any)
		if len(fields) != 4 || fields[0] == nil {
			continue // gone since the scan
		}
		token, err := holdover.ParseToken(strings.TrimPrefix(fmt.Sprint(key), prefix))
		if err != nil {
			return fmt.Errorf("key %v: %w", key, err)
		}
		h := StoredHold{}
		if h.State, err = holdover.ParseState(fmt.Sprint(fields[0])); err != nil {
			return fmt.Errorf("key %v: %w", key, err)
		}
		if fields[1] != nil {
			if h.Shop, err = strconv.ParseInt(fmt.Sprint(fields[1]), 10, 64); err != nil {
				return fmt.Errorf("key %v: shop: %w", key, err)
			}
		}
		if h.State == holdover.StateClaiming && fields[3] != nil && fields[3] != "" {
			fields[2] = fields[3] // the rest is in the counters again
		}
		if fields[2] != nil {
			if h.Lines, err = parseLines(fmt.Sprint(fields[2])); err != nil {
				return fmt.Errorf("key %v: %w", key, err)
			}
		}
		r.Redis[token] = h
	}
	return nil
}

// parseLines reads "item:group:quantity,...".
func parseLines(text string) ([]holdover.Line, error) {
	if text == "" {
		return nil, nil
	}
	var lines []holdover.Line
	for part := range strings.SplitSeq(text, ",") {
		fields := strings.Split(part, ":")
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %q is not item:group:quantity", part)
		}
		var n [3]int64
		for i, f := range fields {
			var err error
			if n[i], err = strconv.ParseInt(f, 10, 64); err != nil {
				return nil, fmt.Errorf("line %q: %w", part, err)
			}
		}
		lines = append(lines, holdover.Line{Item: n[0], Group: n[1], Quantity: n[2]})
	}
	return lines, nil
}

func readCounters(ctx context.Context, do RedisDo, c AuditConfig, r *Reading) error {
	seen := map[holdover.Stock]bool{}
	var items []holdover.Stock
	for _, s := range c.Stock {
		k := holdover.Stock{Shop: s.Shop, Item: s.Item}
		if !seen[k] {
			seen[k] = true
			items = append(items, k)
		}
	}
	for len(items) > 0 {
		page := items[:min(redisPage, len(items))]
		items = items[len(page):]
		command := []any{"MGET"}
		for _, k := range page {
			command = append(command, strings.NewReplacer("<shop>", strconv.FormatInt(k.Shop, 10),
				"<item>", strconv.FormatInt(k.Item, 10)).Replace(c.CounterTemplate))
		}
		reply, err := do(ctx, command...)
		if err != nil {
			return fmt.Errorf("counters: %w", err)
		}
		values, _ := reply.([]any)
		if len(values) != len(page) {
			return fmt.Errorf("counters: asked for %d, got %d", len(page), len(values))
		}
		for i, value := range values {
			if value == nil {
				continue
			}
			n, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
			if err != nil {
				return fmt.Errorf("counter %v: %w", command[i+1], err)
			}
			r.Counters[page[i]] = n
		}
	}
	return nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

func unixMilli(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
