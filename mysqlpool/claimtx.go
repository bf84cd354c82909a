package mysqlpool

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"holdover"
)

// ClaimTx claims a hold inside the caller's own transaction, so that what the
// caller writes (an order, a payment) and the deduction from the ledger commit
// together or not at all. With lines, of a part of the hold. The transaction's
// connection uses the pod's schema by default; any isolation level will do.
//
// Lock order: ClaimTx takes pool_state, inventory_ledger, reserved_quantities
// and ledger_entries, in this order. Take your own locks before it, always in
// one order, and make it the last thing before COMMIT: the ledger's row of a
// hot item is locked until then, and others wait for it. Claims of several
// holds in one transaction can deadlock with each other; claim one cart.
//
// After an error roll back: some of the claim may have been written. The errors
// are those of Claim; ErrTryAgain when the hold changed meanwhile, or when its
// stock was taken by a correction: roll back, then Claim says how it stands.
// Whether a COMMIT without an answer went through, Lookup says. It is not
// batched, and reads the hold on a connection of the pool's.
//
// It is for a pool that decides alone (standalone, or stage mysql-only): in the
// dual stages Redis's mark comes first, and a marked claim goes forward whether
// or not your transaction does.
func (p *Pool) ClaimTx(ctx context.Context, tx *sql.Tx, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	h, err := p.store.claimTx(ctx, tx, shop, token, lines)
	if err != nil {
		return p.result(holdover.Hold{Token: token}, reason(err)), err
	}
	res := p.result(h, "claimed in the caller's transaction")
	if res.Replayed = h.Again; res.Replayed {
		res.Decision.Reason = "it was claimed already"
	}
	return res, nil
}

func (s *Store) claimTx(ctx context.Context, tx *sql.Tx, shop int64, token holdover.Token, lines []holdover.Line) (holdover.Hold, error) {
	if tx == nil || shop <= 0 || token == (holdover.Token{}) {
		return holdover.Hold{}, &holdover.InvalidError{Field: "transaction, shop_id and token", Problem: "must be there"}
	}
	ctx, cancel := s.deadline(ctx)
	defer cancel()
	// Not in the caller's transaction: its snapshot may be older than the hold.
	r, err := s.look(ctx, token)
	switch {
	case err != nil:
		return holdover.Hold{}, err
	case r.State == holdover.StateNone, r.Shop != shop:
		return holdover.Hold{}, unknownHold(token)
	case r.State == holdover.StateClaimed:
		r.Again = true
		return r.Hold, samePart(r.Hold, lines)
	case r.State.Ended():
		return holdover.Hold{}, holdover.EndError(token, r.State)
	}
	if r.Claimed, err = r.PartOf(lines); err != nil {
		return holdover.Hold{}, err
	}
	if err := s.claimSteps(ctx, tx, r.Hold); err != nil {
		return holdover.Hold{}, err
	}
	r.State = holdover.StateClaimed
	return r.Hold, nil
}

// claimSteps writes the claim statement by statement: the caller's connection
// need not allow several at once.
func (s *Store) claimSteps(ctx context.Context, tx *sql.Tx, h holdover.Hold) error {
	run := func(want int, changed string, b *statement) error {
		res, err := tx.ExecContext(ctx, b.String())
		switch {
		case checkFailed(err):
			return fmt.Errorf("hold %s: it ended since it was read: roll back, and Claim says how it stands: %w", h.Token, holdover.ErrTryAgain)
		case err != nil:
			return s.fail("claim in the caller's transaction", h.Token, &serverError{err: err})
		}
		n, err := res.RowsAffected()
		if err != nil {
			return s.fail("claim in the caller's transaction", h.Token, &serverError{err: err})
		}
		if want > 0 && n != int64(want) {
			return fmt.Errorf("hold %s: %s: roll back, and Claim says how it stands: %w", h.Token, changed, holdover.ErrTryAgain)
		}
		return nil
	}
	for chunk := range slices.Chunk(sum(amounts(h.Shop, h.Lines, 1)...), maxKeys) {
		if err := run(len(chunk), "a row of pool_state is missing", new(statement).moveIssued(chunk, -1)); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(sum(amounts(h.Shop, h.Part(), 1)...), maxKeys) {
		if err := run(len(chunk), "the ledger has less than the hold stands for", new(statement).deduct(s.ledger, chunk)); err != nil {
			return err
		}
	}
	for start := 0; start < len(h.Lines); start += maxUnits {
		n := min(maxUnits, len(h.Lines)-start)
		if err := run(n, "it changed since it was read", new(statement).endLines(h, start, n)); err != nil {
			return err
		}
	}
	if h.Claimed != nil {
		for i, n := range claimedOf(h) {
			if err := run(0, "", new(statement).add(stmtClaimedPart, n, h.Token[:], i)); err != nil {
				return err
			}
		}
	}
	entries := claimEntries(h.Shop, h.Part())
	for start := 0; start < len(entries); start += maxRows {
		b := new(statement)
		b.add(entriesHead)
		for i, e := range entries[start:min(start+maxRows, len(entries))] {
			b.sep(i, ", ").add(entriesRow, h.Token[:], start+i, e.shop, e.item, e.group, e.delta, e.kind)
		}
		if err := run(0, "", b.add(entriesTail)); err != nil {
			return err
		}
	}
	return nil
}

// endLines ends n lines of a hold, by their whole keys.
func (b *statement) endLines(h holdover.Hold, start, n int) *statement {
	b.add(endLinesHead)
	for i := range n {
		row := endLinesNext
		if i == 0 {
			row = endLinesFirst
		}
		b.add(row, start+i)
	}
	return b.add(endLinesTail, h.Token[:], uint64(h.Attempt), h.GrantedAt)
}
