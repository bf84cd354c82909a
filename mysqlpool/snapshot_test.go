package mysqlpool

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdover"
)

// TestSnapshot: one moment of everything, in pages, whatever is written meanwhile.
func TestSnapshot(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if err := f.CompareAndSetFence(ctx, 0, fence(epoch, holdover.StageMySQL)); err != nil {
		t.Fatal(err)
	}
	f.load(t, 1, 1, 5000)
	f.load(t, 1, 2, 7)
	ticket := holdover.Ticket{Epoch: epoch, Attempt: mine}
	want := map[holdover.Token]holdover.State{}
	grant := func(journal bool) holdover.Token {
		g, err := f.Vote(ctx, ticket, request(line(1, 1, 2), line(1, 2, 1)), journal)
		if err != nil {
			t.Fatal(err)
		}
		return g.Hold.Token
	}
	want[grant(false)] = holdover.StateHeld
	journaled := grant(true)
	want[journaled] = holdover.StateHeld
	sold := grant(false)
	if _, err := f.Claim(ctx, epoch, 0, sold, []holdover.Line{line(1, 1, 1)}, false); err != nil {
		t.Fatal(err)
	}
	want[sold] = holdover.StateClaimed
	// Many that expire at one moment: pages go on inside it.
	f.exec(t, `INSERT INTO reserved_quantities (token, line, shop_id, item_id, group_id, quantity, state, expires_at, granted_at, attempt, firm, ended_at)
		WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900)
		SELECT UNHEX(LPAD(HEX(i), 32, '0')), 0, 7, 1, 1, 1, IF(i <= 700, 'released', 'expired'), UTC_TIMESTAMP(3) - INTERVAL IF(i <= 700, 1, 90) HOUR, UTC_TIMESTAMP(3), 1, 1, UTC_TIMESTAMP(3) FROM n`)
	owed := holdover.Adjustment{Token: holdover.NewToken(), Shop: shop, Item: 1, Group: 2, Delta: 3, By: "a", Reason: "b"}
	if _, err := f.Adjust(ctx, 0, owed, holdover.AdjustTerms{Redis: true}); err != nil {
		t.Fatal(err)
	}
	got := map[holdover.Token]holdover.Hold{}
	var rows []holdover.Journaled
	var adjusted []holdover.Adjusted
	stocks := map[int64]int64{}
	pages := 0
	err := f.Snapshot(ctx, 72*time.Hour, func(ctx context.Context, p holdover.SnapshotPage) error {
		if pages++; pages == 1 {
			if p.Fence == nil || p.Fence.Epoch != epoch {
				t.Errorf("the first page is %+v", p)
			}
			// After the snapshot: none of it may show.
			if _, err := f.End(ctx, epoch, 0, journaled, holdover.StateReleased, true); err != nil {
				t.Error(err)
			}
			grant(true)
			f.load(t, 2, 1, 5)
		}
		for _, h := range p.Holds {
			if _, twice := got[h.Token]; twice {
				t.Errorf("hold %s twice", h.Token)
			}
			got[h.Token] = h
		}
		for _, st := range p.Stocks {
			stocks[st.Group] += st.Available
			if st.Item != 1 {
				t.Errorf("a row from after the snapshot: %+v", st)
			}
		}
		rows, adjusted = append(rows, p.Journal...), append(adjusted, p.Adjusted...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3+700 {
		t.Errorf("%d holds, want 3 and those 700 that ended less than 72 h ago", len(got))
	}
	for token, state := range want {
		if h := got[token]; h.State != state || len(h.Lines) != 2 {
			t.Errorf("%+v, want %s", h, state)
		}
	}
	if h := got[sold]; len(h.Claimed) != 1 || h.Claimed[0].Quantity != 1 {
		t.Errorf("the part that was claimed: %+v", h)
	}
	if len(rows) != 1 || rows[0].Hold.Token != journaled || rows[0].Hold.State != holdover.StateHeld {
		t.Errorf("journal %+v", rows)
	}
	if len(adjusted) != 1 || adjusted[0].Token != owed.Token || stocks[1] != 5000-1 || stocks[2] != 7+3 {
		t.Errorf("adjusted %+v, stocks %v", adjusted, stocks)
	}
	// Cleared is what was seen, and not what was written since.
	if err := f.ClearJournaled(ctx, rows); err != nil {
		t.Fatal(err)
	}
	left, err := f.Journal(ctx, 10)
	if err != nil || len(left) != 2 {
		t.Fatalf("%+v, %v", left, err)
	}
	if err := f.ClearJournaled(ctx, left); err != nil {
		t.Fatal(err)
	}
	if n := f.number(t, "SELECT COUNT(*) FROM holdover_unmirrored"); n != 0 {
		t.Errorf("%d rows left", n)
	}
	if err := f.JournalFact(ctx, sold); err != nil {
		t.Fatal(err)
	}
	if left, err = f.Journal(ctx, 10); err != nil || len(left) != 1 || left[0].Hold.State != holdover.StateClaimed {
		t.Errorf("a fact: %+v, %v", left, err)
	}
	stop := errors.New("enough")
	if err := f.Snapshot(ctx, time.Hour, func(context.Context, holdover.SnapshotPage) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of use: %v", err)
	}
	f.conserved(t)
}
