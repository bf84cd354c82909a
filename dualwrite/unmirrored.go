package dualwrite

import (
	"sync"
	"time"

	"holdover"
)

// unmirrored remembers, in memory and bounded, the tokens whose mirror work was
// dropped or failed while Redis decides. (In mysql it is MySQL's journal.) An
// outage of MySQL fills it from the buyers' path: nothing that is done under its
// lock takes longer the more there are.
type unmirrored struct {
	mu             sync.Mutex
	max            int
	tokens         map[holdover.Token]*unmirroredSince
	oldest, newest *unmirroredSince // a list, as they came
	turn           *unmirroredSince // whose turn it is to be tried; nil: the oldest's
	debts          int
}

type unmirroredSince struct {
	token holdover.Token
	since time.Time
	next  time.Time // not tried before
	tries int
	debt  bool
	// unsure: nobody was told of a grant. While it is tentative in Redis its own
	// attempt may give it back, and it is no fact that MySQL could be told.
	unsure  bool
	grant   bool   // MySQL may never have got its grant
	kept    bool   // nobody was told of a grant that Redis keeps: it is noted, not carried
	lost    string // why its mirror work was lost; empty: it was not
	version uint64 // counts what happened to the token since it is here

	older, newer *unmirroredSince
}

// debtPause is the longest pause between two tries of a debt: units come back
// when holds end, not when somebody asks more often.
const debtPause = 5 * time.Second

// dueScan bounds how many tokens one pass looks at for those whose next try is due.
const dueScan = 10_000

func newUnmirrored(limit int) *unmirrored {
	return &unmirrored{max: limit, tokens: make(map[holdover.Token]*unmirroredSince)}
}

// add notes what happened to a token; false: there is no room for another one.
func (u *unmirrored) add(token holdover.Token, e unmirroredSince) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if old := u.tokens[token]; old != nil {
		old.unsure = e.unsure && old.unsure // what a buyer was told since is certain
		old.grant, old.kept = old.grant || e.grant, old.kept && e.kept
		u.setDebt(old, e.debt)
		if e.lost != "" {
			old.lost = e.lost
		}
		old.version++
		return true
	}
	if len(u.tokens) >= u.max {
		return false
	}
	e.token, e.since, e.older = token, time.Now(), u.newest
	if u.newest != nil {
		u.newest.newer = &e
	} else {
		u.oldest = &e
	}
	u.newest = &e
	if e.debt {
		u.debts++
	}
	u.tokens[token] = &e
	return true
}

func (u *unmirrored) setDebt(e *unmirroredSince, debt bool) {
	switch {
	case debt && !e.debt:
		u.debts++
	case !debt && e.debt:
		u.debts--
	}
	e.debt = debt
}

// again puts off the next try.
func (u *unmirrored) again(token holdover.Token, debt bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.tokens[token]; e != nil {
		u.setDebt(e, debt)
		e.next = time.Now().Add(min(debtPause, 100*time.Millisecond<<min(e.tries, 10)))
		e.tries++
	}
}

// get returns what is known of a token; the zero value when nothing is.
func (u *unmirrored) get(token holdover.Token) unmirroredSince {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.tokens[token]; e != nil {
		return *e
	}
	return unmirroredSince{}
}

// remove forgets a token, unless something newer happened to it meanwhile.
func (u *unmirrored) remove(token holdover.Token, version uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.tokens[token]
	if e == nil || e.version != version {
		return
	}
	u.setDebt(e, false)
	delete(u.tokens, token)
	if u.turn == e {
		u.turn = e.newer
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		u.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		u.newest = e.older
	}
}

func (u *unmirrored) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	clear(u.tokens)
	u.oldest, u.newest, u.turn, u.debts = nil, nil, nil, 0
}

// due returns up to n tokens whose next try is due, in turn: what could not be
// done does not keep the others from their turn.
func (u *unmirrored) due(n int) (tokens []holdover.Token) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for range min(len(u.tokens), dueScan) {
		if len(tokens) == n {
			break
		}
		if u.turn == nil {
			u.turn = u.oldest
		}
		if !now.Before(u.turn.next) {
			tokens = append(tokens, u.turn.token)
		}
		u.turn = u.turn.newer
	}
	return tokens
}

// size counts the tokens that owe a fact, and those that the other store could
// not take, and says how long the oldest is here.
func (u *unmirrored) size() (tokens, debts int, oldest time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.oldest != nil {
		oldest = time.Since(u.oldest.since)
	}
	return len(u.tokens) - u.debts, u.debts, oldest
}
