package mysqlpool

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"holdover"
)

// ConserveConfig says how to check conservation. A zero field means its default.
type ConserveConfig struct {
	// PageSize is how many locations one statement reads; 2,000. Each page adds
	// up all live holds once.
	PageSize int
	// Recheck is the time between two looks at a row that is wrong; 1 s.
	Recheck time.Duration
	// Looks is how often a row must be wrong to count; 3.
	Looks int
	// PageTimeout bounds one statement; 30 s.
	PageTimeout time.Duration
	// MaxListed bounds the violations that are listed, and the rows that are
	// looked at again; 100. The count of rows is exact up to ten times of it.
	MaxListed int
}

func (c *ConserveConfig) setDefaults() error {
	def(&c.PageSize, 2000)
	def(&c.Recheck, time.Second)
	def(&c.Looks, 3)
	def(&c.PageTimeout, 30*time.Second)
	def(&c.MaxListed, 100)
	if c.PageSize < 1 || c.PageSize > 100_000 || c.Recheck < 0 || c.Looks < 1 || c.PageTimeout < time.Millisecond || c.MaxListed < 1 {
		return &holdover.InvalidError{Field: "conserve", Value: fmt.Sprintf("%+v", *c), Problem: "needs a page_size from 1 to 100,000, at least one look, and no negative times"}
	}
	return nil
}

// Rule is one line of what must hold at every location.
type Rule string

// The rules.
const (
	RuleLedger  Rule = "ledger"  // available >= 0
	RuleIssued  Rule = "issued"  // available >= issued >= 0
	RuleSum     Rule = "sum"     // issued = pool rows + held
	RuleJournal Rule = "journal" // entries + what retention carried = available, where the ledger is holdover's own
	RuleOrphan  Rule = "orphan"  // units without a row of the ledger
)

// Violation is one rule that one location breaks.
type Violation struct {
	Rule Rule `json:"rule"`
	holdover.Stock
	Journal int64  `json:"journal"` // what entries and carried balance come to
	Units   int64  `json:"units"`   // by how much it is off
	Text    string `json:"text"`
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: shop %d, item %d at group %d: %s", v.Rule, v.Shop, v.Item, v.Group, v.Text)
}

// Conservation is the result of one check.
type Conservation struct {
	Pod        string        `json:"pod"`
	At         time.Time     `json:"at"` // when it ended, this process's clock
	Took       time.Duration `json:"took_ns"`
	Rows       int           `json:"rows"`       // locations looked at
	Rechecked  int           `json:"rechecked"`  // rows that were looked at again
	Violating  int           `json:"violating"`  // rows that break a rule
	Violations []Violation   `json:"violations"` // a line for each broken rule, bounded
	Notes      []string      `json:"notes"`      // what is worth a look and breaks no rule
}

// OK reports whether every row kept every rule.
func (c Conservation) OK() bool { return c.Violating == 0 }

// Summary is the result in a sentence, with the notes.
func (c Conservation) Summary() string {
	text := fmt.Sprintf("NOT CONSERVED: %d of %d rows break a rule", c.Violating, c.Rows)
	switch {
	case c.Rows == 0 && c.Violating == 0:
		text = "nothing to check: the ledger has no rows"
	case c.OK():
		text = fmt.Sprintf("conserved: %d rows in %s", c.Rows, c.Took.Round(time.Millisecond))
	}
	for _, note := range c.Notes {
		text += "; note: " + note
	}
	return text
}

// stockLook is one row as one snapshot showed it.
type stockLook struct {
	holdover.Stock
	journal int64
	orphan  bool
}

// Conserve checks, for every item and location and while buyers go on, that
// available >= issued >= 0, issued = pool rows + held units, and that the
// journal's sum is the ledger. It needs no Redis. A row counts when it is wrong
// at several looks. A pool with more rows than this process's cap is noted, and
// breaks no rule: the cap is how this process is configured, and another one, or
// this one before, may have filled the pool up to a larger cap.
func (s *Store) Conserve(ctx context.Context, cfg ConserveConfig) (Conservation, error) {
	out := Conservation{Pod: s.cfg.Pod, Violations: []Violation{}, Notes: []string{}}
	if err := cfg.setDefaults(); err != nil {
		return out, err
	}
	began := time.Now()
	wrong := map[holdover.Stock]stockLook{} // by ids
	over := 0                               // wrong rows beyond what is looked at again
	full, example := 0, holdover.Stock{}    // pools with more rows than the cap
	note := func(l stockLook) {
		switch {
		case len(s.broken(l)) == 0:
		case len(wrong) < cfg.MaxListed*10:
			wrong[ids(l.Stock)] = l
		default:
			over++
		}
	}
	for after := (holdover.Stock{}); ; {
		page, err := s.conservePage(ctx, cfg, after)
		if err != nil {
			return out, err
		}
		for _, l := range page {
			note(l)
			if l.Pooled > s.cfg.PoolCap {
				if full++; l.Pooled > example.Pooled {
					example = l.Stock
				}
			}
		}
		out.Rows += len(page)
		if len(page) < cfg.PageSize {
			break
		}
		after = page[len(page)-1].Stock
	}
	orphans, err := s.conserveOrphans(ctx, cfg)
	if err != nil {
		return out, err
	}
	for _, l := range orphans {
		note(l)
	}
	out.Rechecked = len(wrong)
	for look := 1; look < cfg.Looks && len(wrong) > 0; look++ {
		if !sleep(ctx, cfg.Recheck) {
			return out, s.fail("conserve", holdover.Token{}, context.Cause(ctx))
		}
		if wrong, err = s.conserveAgain(ctx, cfg, wrong); err != nil {
			return out, err
		}
	}
	out.Violating = len(wrong) + over
	for _, k := range sortedStocks(wrong) {
		for _, v := range s.broken(wrong[k]) {
			if len(out.Violations) < cfg.MaxListed {
				out.Violations = append(out.Violations, v)
			}
		}
	}
	if full > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("the pools of %d locations have more rows than this process's cap of %d, shop %d, item %d at group %d the most with %d: configure all processes alike; buyers bring it down",
			full, s.cfg.PoolCap, example.Shop, example.Item, example.Group, example.Pooled))
	}
	out.At, out.Took = time.Now(), time.Since(began)
	return out, nil
}

// ConserveAlone is Conserve unless another process checks the same schema now:
// then alone is false.
func (s *Store) ConserveAlone(ctx context.Context, cfg ConserveConfig) (c Conservation, alone bool, err error) {
	alone, err = s.Alone(ctx, "conserve", func(ctx context.Context) (err error) {
		c, err = s.Conserve(ctx, cfg)
		return err
	})
	return c, alone, err
}

var errPageTimeout = errors.New("one page took longer than page_timeout: make pages smaller")

func sortedStocks(looks map[holdover.Stock]stockLook) []holdover.Stock {
	return slices.SortedFunc(maps.Keys(looks), func(a, b holdover.Stock) int {
		return cmp.Or(cmp.Compare(a.Shop, b.Shop), cmp.Compare(a.Item, b.Item), cmp.Compare(a.Group, b.Group))
	})
}

func ids(st holdover.Stock) holdover.Stock {
	return holdover.Stock{Shop: st.Shop, Item: st.Item, Group: st.Group}
}

// broken lists the rules that one look breaks.
func (s *Store) broken(l stockLook) (all []Violation) {
	add := func(rule Rule, units int64, format string, args ...any) {
		all = append(all, Violation{Rule: rule, Stock: l.Stock, Journal: l.journal, Units: units, Text: fmt.Sprintf(format, args...)})
	}
	if l.orphan {
		add(RuleOrphan, max(l.Issued, l.Pooled+l.Held), "the ledger has no row for it, and %d units are issued, %d in the pool, %d held", l.Issued, l.Pooled, l.Held)
		return all
	}
	if l.Available < 0 {
		add(RuleLedger, -l.Available, "the ledger is at %d", l.Available)
	}
	switch {
	case l.Issued < 0:
		add(RuleIssued, -l.Issued, "%d units are issued", l.Issued)
	case l.Issued > l.Available:
		add(RuleIssued, l.Issued-l.Available, "%d units are issued (%d in the pool, %d held) and the ledger has %d: %d are promised twice", l.Issued, l.Pooled, l.Held, l.Available, l.Issued-l.Available)
	}
	if apart := l.Issued - l.Pooled - l.Held; apart != 0 {
		add(RuleSum, apart, "%d units are issued, and %d in the pool with %d held make %d", l.Issued, l.Pooled, l.Held, l.Pooled+l.Held)
	}
	if s.cfg.Ledger.own() && l.journal != l.Available { // who else writes into a foreign one, writes no entries
		add(RuleJournal, l.Available-l.journal, "the ledger has %d, and its entries come to %d: it was changed by %+d without one", l.Available, l.journal, l.Available-l.journal)
	}
	return all
}

func (l *ledgerStatements) conservePage(after holdover.Stock, limit int) *statement {
	return new(statement).add(l.conserveNext, after.Shop, after.Shop, after.Item, after.Item, after.Group, limit)
}

func (s *Store) conservePage(ctx context.Context, cfg ConserveConfig, after holdover.Stock) ([]stockLook, error) {
	return s.conserveRead(ctx, cfg, s.ledger.conservePage(after, cfg.PageSize))
}

func (s *Store) conserveRead(ctx context.Context, cfg ConserveConfig, b *statement) (all []stockLook, err error) {
	err = s.readLong(ctx, cfg, func(rows *sql.Rows) error {
		var l stockLook
		err := rows.Scan(&l.Shop, &l.Item, &l.Group, &l.Available, &l.Issued, &l.Pooled, &l.Held, &l.journal)
		all = append(all, l)
		return err
	}, b.String())
	return all, err
}

func (s *Store) conserveOrphans(ctx context.Context, cfg ConserveConfig) (all []stockLook, err error) {
	err = s.readLong(ctx, cfg, func(rows *sql.Rows) error {
		l := stockLook{orphan: true}
		err := rows.Scan(&l.Shop, &l.Item, &l.Group, &l.Issued, &l.Pooled, &l.Held)
		all = append(all, l)
		return err
	}, s.ledger.orphans, cfg.MaxListed)
	return all, err
}

// conserveAgain looks at the wrong rows once more and keeps those that still are.
func (s *Store) conserveAgain(ctx context.Context, cfg ConserveConfig, wrong map[holdover.Stock]stockLook) (map[holdover.Stock]stockLook, error) {
	still := map[holdover.Stock]stockLook{}
	var pages []holdover.Stock
	orphaned := false
	for _, k := range sortedStocks(wrong) {
		if wrong[k].orphan {
			orphaned = true
		} else {
			pages = append(pages, k)
		}
	}
	var looks []stockLook
	for len(pages) > 0 {
		n := min(len(pages), maxKeys)
		b := new(statement).add(s.ledger.conserveHead)
		for i, k := range pages[:n] {
			b.sep(i, " OR ").add(s.ledger.keyEquals, k.Shop, k.Item, k.Group)
		}
		page, err := s.conserveRead(ctx, cfg, b.add(s.ledger.conserveTail, n))
		if err != nil {
			return nil, err
		}
		looks, pages = append(looks, page...), pages[n:]
	}
	if orphaned {
		page, err := s.conserveOrphans(ctx, cfg)
		if err != nil {
			return nil, err
		}
		looks = append(looks, page...)
	}
	for _, l := range looks {
		if _, was := wrong[ids(l.Stock)]; was && len(s.broken(l)) > 0 {
			still[ids(l.Stock)] = l
		}
	}
	return still, nil
}

// readLong is read for statements that may take longer than a buyer's.
func (s *Store) readLong(ctx context.Context, cfg ConserveConfig, scan func(*sql.Rows) error, q string, args ...any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.PageTimeout, errPageTimeout)
	defer cancel()
	if err := each(ctx, s.main, scan, q, args...); err != nil {
		return s.fail("conserve", holdover.Token{}, timedOut(ctx, err))
	}
	return nil
}
