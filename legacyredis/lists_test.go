package legacyredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

func zMember(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

func TestDueAndMarked(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 1000, item2: 1000})
	now := r.redisNow()
	held := func(items int64, ago time.Duration) holdover.Token {
		h := fact(holdover.NewToken(), holdover.StateHeld, line(items, 1))
		h.ExpiresAt = time.UnixMilli(now).Add(-ago)
		must[holdover.Hold](t)(r.Apply(ctx, h))
		return h.Token
	}
	minute, hour, second := held(item, time.Minute), held(item2, time.Hour), held(item, time.Second)
	held(item, -time.Hour) // not due
	marked := held(item, time.Hour)
	must[holdover.Hold](t)(r.Mark(ctx, 0, 0, marked, nil))

	for _, test := range []struct {
		name  string
		grace time.Duration
		shop  int64
		items []int64
		limit int
		want  []holdover.Token
	}{
		{"all, oldest first", 0, 0, nil, 10, []holdover.Token{hour, minute, second}},
		{"limited", 0, 0, nil, 2, []holdover.Token{hour, minute}},
		{"after a grace", 30 * time.Second, 0, nil, 10, []holdover.Token{hour, minute}},
		{"of an item", 0, shop, []int64{item}, 10, []holdover.Token{minute, second}},
		{"of two items", 0, shop, []int64{item2, item}, 10, []holdover.Token{hour, minute, second}},
		{"of another shop", 0, shop + 1, []int64{item}, 10, nil},
	} {
		due := must[[]holdover.Hold](t)(r.Due(ctx, test.grace, test.shop, test.items, test.limit))
		if len(due) != len(test.want) {
			t.Errorf("%s: %d holds, want %d", test.name, len(due), len(test.want))
			continue
		}
		for i, h := range due {
			if h.Token != test.want[i] || h.State != holdover.StateHeld || len(h.Lines) != 1 {
				t.Errorf("%s: hold %d is %+v, want %s", test.name, i, h, test.want[i])
			}
		}
	}

	if got := must[[]holdover.Hold](t)(r.Marked(ctx, 0, 10)); len(got) != 1 || got[0].Token != marked || got[0].State != holdover.StateClaiming {
		t.Errorf("marked are %+v, want %s", got, marked)
	}
	if got := must[[]holdover.Hold](t)(r.Marked(ctx, time.Hour, 10)); len(got) != 0 {
		t.Errorf("%+v was marked an hour ago", got)
	}
	// A repeated mark does not make it younger.
	r.raw.ZAdd(ctx, "claiming", zMember(float64(now-2*3600_000), marked.String()))
	must[holdover.Hold](t)(r.Mark(ctx, 0, 0, marked, nil))
	if got := must[[]holdover.Hold](t)(r.Marked(ctx, time.Hour, 10)); len(got) != 1 {
		t.Error("a repeated mark made the first one younger")
	}

	// Pitfall 12: entries that lead nowhere, and one unreadable hold, don't hide the rest.
	r.raw.ZAdd(ctx, "holds", zMember(1, holdover.NewToken().String()))
	broken := holdover.NewToken().String()
	r.raw.ZAdd(ctx, "holds", zMember(2, broken))
	r.raw.Set(ctx, "hold:"+broken, "mine", 0)
	if got := must[[]holdover.Hold](t)(r.Due(ctx, 0, 0, nil, 1)); len(got) != 1 || got[0].Token != hour {
		t.Errorf("due is %+v, want %s", got, hour)
	}
}

func TestLiveHoldsComesToAll(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.load(map[int64]int64{item: 10_000})
	want := make(map[holdover.Token]holdover.State)
	for i := range 700 {
		token := holdover.NewToken()
		must[holdover.Hold](t)(r.Apply(ctx, fact(token, holdover.StateHeld, line(item, 1))))
		switch i % 3 {
		case 0:
			want[token] = holdover.StateHeld
		case 1:
			must[holdover.Hold](t)(r.Mark(ctx, 0, 0, token, nil))
			want[token] = holdover.StateClaiming
		case 2:
			must[holdover.Hold](t)(r.End(ctx, 0, 0, token, holdover.StateReleased))
		}
	}
	got := make(map[holdover.Token]holdover.State)
	pages := 0
	for cursor := uint64(0); ; {
		holds, next, err := r.LiveHolds(ctx, cursor, 50)
		if err != nil {
			t.Fatal(err)
		}
		if len(holds) > 200 {
			t.Errorf("a page of 50 has %d holds", len(holds))
		}
		for _, h := range holds {
			got[h.Token] = h.State
			if len(h.Lines) != 1 || !h.Firm {
				t.Errorf("hold is %+v", h)
			}
		}
		pages++
		if cursor = next; cursor == 0 || pages > 1000 {
			break
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d holds in %d pages, want %d", len(got), pages, len(want))
	}
	for token, state := range want {
		if got[token] != state {
			t.Errorf("%s is %s, want %s", token, got[token], state)
		}
	}
}

func TestLoadKeepsWhatIsThere(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	if n := must[int](t)(r.Load(ctx, shop, map[int64]int64{item: 5}, false)); n != 1 {
		t.Errorf("loaded %d, want 1", n)
	}
	if n := must[int](t)(r.Load(ctx, shop, map[int64]int64{item: 9, item2: 0}, false)); n != 1 {
		t.Errorf("loaded %d, want the new one", n)
	}
	r.wantCounter(item, 5)
	r.wantCounter(item2, 0)
	if n := must[int](t)(r.Load(ctx, shop, map[int64]int64{item: -2, item2: 3}, true)); n != 2 {
		t.Errorf("loaded %d, want both", n)
	}
	r.wantCounter(item, -2)
	// More than one batch.
	many := make(map[int64]int64)
	var items []int64
	for i := int64(1000); i < 2700; i++ {
		many[i], items = i, append(items, i)
	}
	if n := must[int](t)(r.Load(ctx, shop, many, false)); n != len(many) {
		t.Errorf("loaded %d of %d", n, len(many))
	}
	for i, n := range must[[]int64](t)(r.Counters(ctx, shop, items)) {
		if n != items[i] {
			t.Fatalf("counter of item %d is %d", items[i], n)
		}
	}
}
