package compare

import (
	"context"
	"fmt"
	"time"

	"holdover"
)

// lag is what one store is still to get, as the other one knew it at this look: no
// difference.
type lag struct {
	facts map[holdover.Token]holdover.Hold
	items map[itemKey]bool // whose counters move when they get there
	owed  map[itemKey]bool // whose counter or ledger is to follow an adjustment
	all   bool             // more adjustments are open than could be looked at
	late  map[holdover.Token]holdover.Journaled
	more  bool // the journal was not read to its end
}

// readLag reads MySQL's journal, the adjustments that Redis is owed, and those that
// Redis has given up units for and MySQL has not decided. Rows that are older than
// JournalAge at every look are named.
func (v *verifier) readLag(ctx context.Context) error {
	var rows []holdover.Journaled
	err := v.call(ctx, "read mysql's journal", func(ctx context.Context) (err error) {
		rows, err = v.mysql.Journal(ctx, v.cfg.JournalMax)
		return err
	})
	if err != nil {
		return err
	}
	var owed []holdover.Adjusted
	err = v.call(ctx, "list owed adjustments", func(ctx context.Context) (err error) {
		owed, err = v.mysql.OwedAdjustments(ctx, v.cfg.JournalMax)
		return err
	})
	if err != nil {
		return err
	}
	var lowered []holdover.Lowered
	err = v.call(ctx, "list given up units", func(ctx context.Context) (err error) {
		lowered, err = v.redis.LoweredAdjustments(ctx, 0, MaxLowered)
		return err
	})
	if err != nil {
		return err
	}
	now := lag{facts: map[holdover.Token]holdover.Hold{}, items: map[itemKey]bool{}, owed: map[itemKey]bool{}, late: map[holdover.Token]holdover.Journaled{}, more: len(rows) >= v.cfg.JournalMax}
	for _, row := range rows {
		now.facts[row.Hold.Token] = row.Hold
		for _, l := range row.Hold.Lines {
			now.items[itemKey{row.Hold.Shop, l.Item}] = true
		}
		// Its age by this process's clock: a bound of a minute need not be exact.
		_, before := v.lag.late[row.Hold.Token]
		if time.Since(row.Since) > v.cfg.JournalAge && (before || v.out.Rounds == 0) {
			now.late[row.Hold.Token] = row
		}
	}
	for _, a := range owed {
		now.owed[itemKey{a.Shop, a.Item}] = true
	}
	for _, l := range lowered {
		now.owed[itemKey{l.Adjustment.Shop, l.Adjustment.Item}] = true
	}
	now.all = len(owed) >= v.cfg.JournalMax || len(lowered) >= MaxLowered
	v.lag = now
	return nil
}

func (l lag) has(token holdover.Token) bool {
	_, is := l.facts[token]
	return is
}

// moves says whether the item's counter is still to follow something. One that is
// missing stays as it is, and keeps what is under way from getting there.
func (l lag) moves(key itemKey, missing bool) bool {
	return l.all || l.owed[key] || l.items[key] && !missing
}

func (l lag) differences(bound time.Duration) (all []Difference) {
	for token, row := range l.late {
		all = append(all, Difference{
			Kind: DiffJournal, Token: token.String(), Shop: row.Hold.Shop, MySQL: row.Hold.State.String(), Units: unitsOf(row.Hold.Part()),
			Text: fmt.Sprintf("redis was to get it since %s, longer than %s: see the log of the instances for what keeps it back", row.Since.Format(time.RFC3339), bound),
		})
	}
	if l.more {
		all = append(all, Difference{Kind: DiffJournal, Text: fmt.Sprintf("the journal has more than %d rows: not all could be looked at", len(l.facts))})
	}
	return all
}
