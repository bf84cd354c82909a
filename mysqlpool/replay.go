package mysqlpool

import (
	"context"

	"holdover"
)

// replay answers for a token that has rows: under the fence, in the vote's or
// the fact's own right. errChanged: it has none any more.
func (s *Store) replay(ctx context.Context, w *wanted) (g holdover.Grant, err error) {
	err = s.transact(ctx, s.main, w.op, w.token, func(ctx context.Context, t *tx) error {
		if err := t.checkFence(ctx, w.epoch); err != nil {
			return err
		}
		var levels map[key]holdover.Stock
		if !w.fact {
			var err error
			if levels, err = s.levels(ctx, t.conn, keysOf(w.shop, w.lines)); err != nil {
				return err
			}
		}
		h, err := t.look(ctx, stmtHoldUpdate, w.token)
		if err != nil {
			return err
		}
		g = holdover.Grant{Hold: h.Hold, Replayed: true}
		known := len(h.Lines) > 0 // not an end record of a hold that was never here
		switch {
		case h.State == holdover.StateNone:
			return errChanged
		case known && (h.Shop != w.shop || !holdover.SameLines(h.Lines, w.lines)):
			return reused(w.token)
		case h.State.Ended() && w.fact:
			return nil // the fact lost against an end record; the caller sees the state
		case h.State.Ended():
			return holdover.EndError(w.token, h.State)
		}
		for _, st := range levels {
			if st.Available < st.Issued {
				return s.overbooked(w.token, st)
			}
		}
		if !h.Firm && (w.fact || w.journal || w.attempt != h.Attempt) {
			if _, err := t.exec(ctx, stmtFirm, w.token[:]); err != nil {
				return err
			}
			g.Hold.Firm = true
		}
		if w.fact && w.expires.After(h.ExpiresAt) { // extended since
			later := rounded(w.expires)
			if _, err := t.exec(ctx, stmtLater, later, w.token[:], later); err != nil {
				return err
			}
			g.Hold.ExpiresAt = later
		}
		if w.journal {
			return t.journal(ctx, w.token)
		}
		return nil
	})
	if err != nil {
		return holdover.Grant{}, err
	}
	s.stats.replays.Add(1)
	return g, nil
}
