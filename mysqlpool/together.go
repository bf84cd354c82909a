package mysqlpool

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"time"

	"holdover"
)

// endCall is an end that is made together with those of other calls.
type endCall struct {
	ending
	record // the hold as it was read, and afterwards as it is

	did   bool
	apart bool // the transaction did not fit: the caller goes step by step
	err   error
}

// endShare is the run of the claim and the end batchers. Calls of locations
// where somebody else keeps a lock go on without the slot, each location for
// itself, and its next calls at once.
func (s *Store) endShare(ctx context.Context, calls []*endCall, done func(*endCall)) func(context.Context, func(*endCall)) {
	blocked := s.endTogether(ctx, calls, sharing, done)
	if len(blocked) == 0 {
		return nil
	}
	first := func(c *endCall) key {
		if len(c.Lines) == 0 { // not read yet
			return key{}
		}
		return keyOf(c.Shop, c.Lines[0])
	}
	return func(ctx context.Context, done func(*endCall)) {
		apart(groupsOf(blocked, first, nil), func(group []*endCall) {
			if len(group) < len(blocked) { // most of them don't wait for what some wait for
				if group = s.endTogether(ctx, group, waiting, done); len(group) == 0 {
					return
				}
			}
			s.contended.mark([]key{first(group[0])})
			s.endTogether(ctx, group, patient, done)
		})
	}
}

// manner is how calls that share a transaction take a lock that is not free.
type manner uint8

const (
	sharing manner = iota // they go apart; where it is known to be kept, without waiting
	waiting               // they wait once
	patient               // they wait until their time is over
)

// endTogether is one transaction for all calls whose hold is there to be ended.
// The ledger's updates are added up, one for each item. It returns the calls
// that have to wait for a lock. When the server refuses the transaction, halves
// are tried, down to the call at fault: it harms nobody else.
func (s *Store) endTogether(ctx context.Context, calls []*endCall, how manner, done func(*endCall)) (blocked []*endCall) {
	err := s.transactWith(ctx, s.main, calls[0].op, calls[0].token, how == patient, func(ctx context.Context, t *tx) (err error) {
		blocked, err = t.endAll(ctx, calls, how)
		return err
	})
	fault := len(calls) == 1 && err != nil
	switch {
	case err == nil:
		for _, c := range calls {
			if !slices.Contains(blocked, c) {
				done(c)
			}
		}
		return blocked
	case number(err) == errLockWait && how != patient:
		s.stats.split.Add(1)
		return calls
	case fault && (number(err) == errMismatch || checkFailed(err)):
		calls[0].apart = true
		done(calls[0])
		return nil
	case fault && number(err) == errDuplicateKey:
		// Only its ledger entry can be there: an earlier hold with this token was
		// claimed, and is so long gone that nothing else is left of it.
		err = reused(calls[0].token)
	case !fault && number(err) != errLockWait && divisible(err):
		s.stats.split.Add(1)
		half := len(calls) / 2
		return append(s.endTogether(ctx, calls[:half], how, done), s.endTogether(ctx, calls[half:], how, done)...)
	}
	for _, c := range calls {
		c.err = forCall(err, c.op, c.token)
		done(c)
	}
	return nil
}

func (t *tx) endAll(ctx context.Context, calls []*endCall, how manner) (blocked []*endCall, err error) {
	fence, found, err := t.readHolds(ctx, len(calls), func(i int) (holdover.Token, holdover.Epoch) { return calls[i].token, calls[i].epoch })
	if err != nil {
		return nil, err
	}
	var todo []*endCall
	seen := map[holdover.Token]bool{}
	for _, c := range calls {
		c.record, c.did, c.err = found[c.token], false, t.s.refuse(fence, c.epoch)
		c.Token = c.token
		switch {
		case c.err != nil:
		case seen[c.token]:
			c.err = errChanged // by the call before it: read again
		case c.State != holdover.StateHeld, c.shop != 0 && c.shop != c.Shop, c.how == holdover.StateExpired && !c.due && !c.fact:
			c.err = errAlone
		case how == sharing && t.s.contended.any(keysOf(c.Shop, c.Lines)):
			blocked = append(blocked, c)
		default:
			if c.how == holdover.StateClaimed {
				if c.Claimed, c.err = c.PartOf(c.part); c.err != nil {
					continue
				}
			}
			seen[c.token] = true
			todo = append(todo, c)
		}
	}
	if len(todo) == 0 {
		return blocked, nil
	}
	slices.SortFunc(todo, func(a, b *endCall) int { return bytes.Compare(a.token[:], b.token[:]) }) // one order of locks
	var issued, claimed []amount
	var holds []holdRef
	for _, c := range todo {
		issued = append(issued, amounts(c.Shop, c.Lines, 1)...)
		if c.how == holdover.StateClaimed {
			claimed = append(claimed, amounts(c.Shop, c.Part(), 1)...)
		}
		holds = append(holds, holdRef{c.Hold, c.how, c.latest(c.Hold)})
	}
	b := new(statement)
	for chunk := range slices.Chunk(sum(issued...), maxKeys) {
		b.moveIssued(chunk, -1).expect(len(chunk))
	}
	for chunk := range slices.Chunk(sum(claimed...), maxKeys) {
		b.deduct(t.s.ledger, chunk).expect(len(chunk))
	}
	b.holds(holds, endHoldsTail)
	for _, c := range todo {
		b.claimedPart(c.Hold)
	}
	for _, c := range todo {
		if c.how == holdover.StateClaimed {
			b.entries(c.token, claimEntries(c.Shop, c.Part()))
		}
	}
	b.endRows(entriesTail)
	for _, c := range todo {
		if c.journal {
			b.journal(c.token)
		}
	}
	if _, err := t.send(ctx, b.commit()); err != nil {
		return nil, err
	}
	for _, c := range todo {
		c.State, c.did = c.how, true
	}
	return blocked, nil
}

// readHolds reads several holds, without a lock, behind the fence if one of the
// calls has an epoch.
func (t *tx) readHolds(ctx context.Context, n int, call func(int) (holdover.Token, holdover.Epoch)) (fenceScan, map[holdover.Token]record, error) {
	var f fenceScan
	var rs records
	b := new(statement)
	var scans []func(*sql.Rows) error
	fenced := false
	for i := range n {
		_, e := call(i)
		fenced = fenced || e != 0
	}
	if fenced {
		b.next().add(stmtFenceShare)
		scans = append(scans, f.scan)
	}
	b.next().add(holdsHead, t.s.window())
	for i := range n {
		token, _ := call(i)
		b.sep(i, ", ").add("?", token[:])
	}
	b.add(holdsTail)
	scans = append(scans, rs.scan)
	var err error
	if fenced {
		err = t.ask(ctx, b, scans...)
	} else { // no transaction before something is written
		err = eachSet(ctx, t.conn, scans, b.String())
	}
	found := make(map[holdover.Token]record, len(rs))
	for _, r := range rs {
		found[r.Token] = r
	}
	return f, found, err
}

// holdRef is a hold that a list statement changes, if it is still the one that
// was read.
type holdRef struct {
	holdover.Hold
	how     holdover.State
	expires time.Time
}

// holds changes several holds, by lists of at most maxUnits.
func (b *statement) holds(all []holdRef, tail string) *statement {
	for chunk := range slices.Chunk(all, maxUnits) {
		b.next().add(holdListHead)
		lines := 0
		for i, h := range chunk {
			row := holdListNext
			if i == 0 {
				row = holdListFirst
			}
			b.add(row, h.Token[:], uint64(h.Attempt), h.GrantedAt, h.how.String(), h.expires)
			lines += len(h.Lines)
		}
		b.add(tail).expect(lines)
	}
	return b
}
