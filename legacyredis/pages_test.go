package legacyredis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

// TestListsOfMany: what is asked for is listed whole, in its order, page by page.
func TestListsOfMany(t *testing.T) {
	r := newRig(t)
	const many = 2300
	began := time.Now().Add(-time.Hour).UnixMilli()
	var tokens []string
	_, err := r.raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range many {
			token := holdover.NewToken().String()
			tokens = append(tokens, token)
			at := began + int64(i)
			state, index := "claiming", "claiming"
			if i%2 == 0 {
				state, index = "held", "holds"
			}
			p.HSet(t.Context(), "hold:"+token, "state", state, "shop", 1, "lines", "1:1:1", "expires_ms", at, "granted_ms", at, "attempt", 1)
			p.ZAdd(t.Context(), index, redis.Z{Score: float64(at), Member: token})
			p.HSet(t.Context(), "adjust:"+token, "body", fmt.Sprintf(`{"token":%q,"shop_id":1,"item_id":1}`, token), "lowered", i, "free", 0)
			p.ZAdd(t.Context(), "adjusting", redis.Z{Score: float64(at), Member: token})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	due := must[[]holdover.Hold](t)(r.Due(t.Context(), 0, 0, nil, many))
	marked := must[[]holdover.Hold](t)(r.Marked(t.Context(), 0, many))
	if len(due) != many/2 || len(marked) != many/2 {
		t.Fatalf("%d due and %d marked holds, want %d each", len(due), len(marked), many/2)
	}
	for i := range due {
		if due[i].Token.String() != tokens[2*i] || marked[i].Token.String() != tokens[2*i+1] {
			t.Fatalf("in place %d are %s and %s", i, due[i].Token, marked[i].Token)
		}
	}
	if got := must[[]holdover.Hold](t)(r.Due(t.Context(), 0, 0, nil, 1001)); len(got) != 1001 {
		t.Errorf("%d of 1,001", len(got))
	}
	lowered := must[[]holdover.Lowered](t)(r.LoweredAdjustments(t.Context(), 0, many+1))
	if len(lowered) != many {
		t.Fatalf("%d adjustments, want %d", len(lowered), many)
	}
	for i, l := range lowered {
		if l.Units != int64(i) {
			t.Fatalf("in place %d is the one of %d units", i, l.Units)
		}
	}
}
