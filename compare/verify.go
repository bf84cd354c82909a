package compare

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"holdover"
)

// RedisState is what Verify reads of the pod's Redis.
type RedisState interface {
	// LiveHolds pages over held and claiming holds: cursor 0 starts, a
	// returned 0 ends. A hold may come twice.
	LiveHolds(ctx context.Context, cursor uint64, count int) ([]holdover.Hold, uint64, error)
	// Counters reads stock counters; ErrNotLoaded when one is missing.
	Counters(ctx context.Context, shop int64, items []int64) ([]int64, error)
	// Lookup returns what is known, end records included; StateNone for an
	// unknown token.
	Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error)
	// LoweredAdjustments lists up to limit, at most MaxLowered, adjustments that
	// Redis gave up units for at least age ago and that are not settled.
	LoweredAdjustments(ctx context.Context, age time.Duration, limit int) ([]holdover.Lowered, error)
}

// MaxLowered is how many open adjustments of Redis are looked at; with more than
// that no counter is taken to stand still.
const MaxLowered = 1000

// MySQLState is what Verify reads of the pod's MySQL.
type MySQLState interface {
	// LiveHolds pages over held holds in the order of their tokens, beginning
	// after the given one; an empty page ends.
	LiveHolds(ctx context.Context, after holdover.Token, limit int) ([]holdover.Hold, error)
	// Stocks pages over the stock rows in the order of shop, item and group,
	// beginning after those of the given one; an empty page ends.
	Stocks(ctx context.Context, after holdover.Stock, limit int) ([]holdover.Stock, error)
	// StocksOf reads the rows of some items of a shop; held units may be taken
	// as issued less pooled.
	StocksOf(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error)
	// Lookup is as RedisState's.
	Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error)
	// Journal lists up to limit facts that Redis does not have yet, oldest first.
	Journal(ctx context.Context, limit int) ([]holdover.Journaled, error)
	// OwedAdjustments lists up to limit adjustments that Redis has not followed yet.
	OwedAdjustments(ctx context.Context, limit int) ([]holdover.Adjusted, error)
}

// VerifyConfig says how to verify. Zero fields mean the default.
type VerifyConfig struct {
	// Pod is required; it names the pod in the result.
	Pod string
	// Recheck is the time between two looks at the same difference. It must be
	// longer than the longest call and its give-back; 15 s.
	Recheck time.Duration
	// Rounds is how often a difference is looked at; 3, at least 2.
	Rounds int
	// Tries is how often an item that moved while it was read is read again
	// within one round; 5.
	Tries int
	// PageSize is how many holds, rows or counters one call reads; 500.
	PageSize int
	// CallTimeout is the deadline of each call of a store; 5 s.
	CallTimeout time.Duration
	// RetryFor is how long a store may give no answer before the verification
	// ends; 30 s. What was read before stays.
	RetryFor time.Duration
	// PagesPerSecond is how fast pages are read, and ten times as many single
	// holds, so that buyers don't feel it; 100. Negative: as fast as it goes.
	PagesPerSecond int
	// Progress, when not nil, hears after each page how many rows of how many
	// were read, and how long it will take: an estimate, since the store moves on.
	Progress func(done, total int, left time.Duration)
	// JournalMax is how many rows of MySQL's journal are read; 100,000.
	JournalMax int
	// JournalAge is how old a row of the journal may be before it is named; 1 min.
	JournalAge time.Duration
	// LastClean is the last clean verification, for the texts; zero: none known.
	LastClean holdover.Verified
	// Strangers are clients of Redis that are not holdover's, for the texts about
	// counters that somebody else has changed.
	Strangers []string
	// MaxRechecks is how many holds, items and rows each are looked at again;
	// 10,000. More than that are counted as unsettled.
	MaxRechecks int
	// MaxDifferences is how many differences, and how many unsettled ones, the
	// result lists; 100. Counts are exact.
	MaxDifferences int
	// DualSince is when dual writing began, by Redis's clock. A hold that only
	// Redis has and that is older is named as such. Zero: not known.
	DualSince time.Time
	// Truth is the store that decides in the agreed stage; none: not known. Where
	// MySQL does, an expiry that Redis has earlier is a difference too: a kill
	// would let the hold end before its time.
	Truth holdover.Store
	// ExpirySkew is how far apart a hold's two expiries may be: in joint each
	// store has its own clock's time. Missing extensions are larger; 5 s.
	ExpirySkew time.Duration
}

func (c VerifyConfig) withDefaults() (VerifyConfig, error) {
	setDefault(&c.Recheck, 15*time.Second)
	setDefault(&c.Rounds, 3)
	setDefault(&c.Tries, 5)
	setDefault(&c.PageSize, 500)
	setDefault(&c.CallTimeout, 5*time.Second)
	setDefault(&c.ExpirySkew, 5*time.Second)
	setDefault(&c.RetryFor, 30*time.Second)
	setDefault(&c.PagesPerSecond, 100)
	setDefault(&c.JournalMax, 100_000)
	setDefault(&c.JournalAge, time.Minute)
	setDefault(&c.MaxRechecks, 10_000)
	setDefault(&c.MaxDifferences, 100)
	bad := func(field string, value any, problem string) error {
		return &holdover.InvalidError{Field: "verify " + field, Value: fmt.Sprint(value), Problem: problem}
	}
	switch {
	case c.Pod == "":
		return c, bad("pod", "", "is missing")
	case c.Rounds < 2:
		return c, bad("rounds", c.Rounds, "is less than 2: one look can't tell lag from a difference")
	case c.Recheck < 0:
		return c, bad("recheck", c.Recheck, "is negative")
	case c.CallTimeout < 0:
		return c, bad("call_timeout", c.CallTimeout, "is negative")
	case c.ExpirySkew < 0:
		return c, bad("expiry_skew", c.ExpirySkew, "is negative")
	case c.RetryFor < 0 || c.JournalAge < 0:
		return c, bad("retry_for or journal_age", min(c.RetryFor, c.JournalAge), "is negative")
	case c.JournalMax < 1:
		return c, bad("journal_max", c.JournalMax, "is not positive")
	case min(c.Tries, c.PageSize, c.MaxRechecks, c.MaxDifferences) < 0:
		return c, bad("tries, page_size, max_rechecks or max_differences", min(c.Tries, c.PageSize, c.MaxRechecks, c.MaxDifferences), "is negative")
	}
	return c, nil
}

// DifferenceKind is what a verification found.
type DifferenceKind string

// The kinds of differences.
const (
	DiffOnlyInRedis      DifferenceKind = "only-in-redis"     // live in Redis, not live in MySQL
	DiffPreDual          DifferenceKind = "pre-dual"          // the same, and older than dual writing
	DiffOnlyInMySQL      DifferenceKind = "only-in-mysql"     // live in MySQL, not live in Redis
	DiffNotFirm          DifferenceKind = "not-firm"          // in both, but a give-back may still undo it in MySQL
	DiffLines            DifferenceKind = "lines-differ"      // in both, for other lines or another shop
	DiffExpiry           DifferenceKind = "expiry-differs"    // in both, and one ends before the other
	DiffEndedDifferently DifferenceKind = "ended-differently" // claimed in one, given back or claimed in other lines in the other
	DiffCounter          DifferenceKind = "counter"           // the counter is not ledger less live holds
	DiffCounterMissing   DifferenceKind = "counter-missing"   // the item is in the ledger and has no counter
	DiffLedgerMissing    DifferenceKind = "ledger-missing"    // Redis holds units of an item that has no ledger row
	DiffConservation     DifferenceKind = "conservation"      // MySQL: available >= issued = pooled + held is broken
	DiffJournal          DifferenceKind = "journal-late"      // in MySQL's journal for too long: Redis does not get it
)

// Difference is one finding: of a token, or of an item (with its group where
// it is about one location).
type Difference struct {
	Kind  DifferenceKind `json:"kind"`
	Token string         `json:"token,omitempty"`
	Shop  int64          `json:"shop_id,omitempty"`
	Item  int64          `json:"item_id,omitempty"`
	Group int64          `json:"group_id,omitempty"`
	Redis string         `json:"redis,omitempty"`
	MySQL string         `json:"mysql,omitempty"`
	Text  string         `json:"text"`
	// Units concerned; for a counter how much it is above (or, negative,
	// below) what it should be.
	Units int64 `json:"units"`
}

func (d Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", d.Kind)
	switch {
	case d.Token != "":
		fmt.Fprintf(&b, "hold %s of shop %d", d.Token, d.Shop)
	case d.Group != 0:
		fmt.Fprintf(&b, "shop %d, item %d at group %d", d.Shop, d.Item, d.Group)
	default:
		fmt.Fprintf(&b, "shop %d, item %d", d.Shop, d.Item)
	}
	fmt.Fprintf(&b, ": %s (%d units)", d.Text, d.Units)
	return b.String()
}

// Verification is the result of one pass over both stores.
type Verification struct {
	Pod     string        `json:"pod"`
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took_ns"`
	Rounds  int           `json:"rounds"` // looks that were taken

	HoldsRedis int `json:"holds_redis"` // live at the first look
	HoldsMySQL int `json:"holds_mysql"`
	Items      int `json:"items"`
	Rows       int `json:"rows"` // stock rows: items by location

	// Journaled is how many facts Redis was still to get at the last look: lag,
	// and no difference while they are young.
	Journaled int `json:"journaled"`
	// Retried is how often a store gave no answer and was asked again.
	Retried int `json:"retried"`
	// Strangers are clients of Redis that are not holdover's, as a hint; only
	// where a counter differs.
	Strangers []string `json:"strangers,omitempty"`

	// Differences lists the first MaxDifferences; Count has them all.
	Differences []Difference `json:"differences,omitempty"`
	Count       uint64       `json:"difference_count"`
	// PreDual is how many of them are only holds older than dual writing.
	PreDual uint64 `json:"pre_dual"`
	// Unsettled lists what differed and never stood still: neither clean nor a
	// difference. UnsettledCount has them all.
	Unsettled      []Difference `json:"unsettled,omitempty"`
	UnsettledCount uint64       `json:"unsettled_count"`
	// ForeignWrites sums up the counters that differ: oversell when the counter
	// promises more than there is.
	ForeignWrites []Tally `json:"foreign_writes,omitempty"`

	all []Difference // not only those that are listed

	// Clean: something was verified, nothing differs, and nothing is unsettled.
	Clean bool `json:"clean"`
}

// Summary is one line.
func (v Verification) Summary() string {
	if v.Items == 0 {
		return "nothing to verify: MySQL has no stock rows"
	}
	word := "clean"
	if !v.Clean {
		word = fmt.Sprintf("not clean: %d differences (%d of them holds older than dual writing), %d unsettled", v.Count, v.PreDual, v.UnsettledCount)
	}
	return fmt.Sprintf("%s; %s in redis, %d in mysql, %s, %s in %s",
		word, counted(v.HoldsRedis, "hold"), v.HoldsMySQL, counted(v.Items, "item"), counted(v.Rounds, "look"), v.Took.Round(time.Millisecond)) + v.found()
}

// maxFound bounds the text about one difference in a summary, in bytes.
const maxFound = 300

// found says what the differences are, by kind, and which is the first.
func (v Verification) found() string {
	kinds, counts := []DifferenceKind{}, map[DifferenceKind]int{}
	for _, d := range v.Differences {
		if counts[d.Kind]++; counts[d.Kind] == 1 {
			kinds = append(kinds, d.Kind)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	var parts []string
	for _, k := range kinds {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	first := v.Differences[0].String()
	if len(first) > maxFound {
		first = strings.ToValidUTF8(first[:maxFound], "") + "..."
	}
	return fmt.Sprintf("; of the first %d: %s; one is %s", len(v.Differences), strings.Join(parts, ", "), first)
}

// counted says "1 hold" and "2 holds".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Verify compares the state of both stores while buyers go on. See the
// package's documentation for what counts as a difference. An error means
// that nothing was verified.
func Verify(ctx context.Context, redis RedisState, mysql MySQLState, cfg VerifyConfig) (Verification, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Verification{}, err
	}
	v := newVerifier(redis, mysql, cfg)
	for round := range cfg.Rounds {
		if round > 0 {
			if v.settled() {
				break
			}
			if err := wait(ctx, cfg.Recheck); err != nil {
				return Verification{}, fmt.Errorf("verify pod %s: %w", cfg.Pod, err)
			}
		}
		if err := v.look(ctx, round == 0); err != nil {
			return Verification{}, fmt.Errorf("verify pod %s: %w", cfg.Pod, err)
		}
		v.out.Rounds++
	}
	if cfg.Progress != nil {
		cfg.Progress(v.pace.done, v.pace.done, 0)
	}
	v.conclude()
	v.out.Took = time.Since(v.out.Started)
	v.out.Started = plain(v.out.Started)
	return v.out, nil
}

func newVerifier(redis RedisState, mysql MySQLState, cfg VerifyConfig) *verifier {
	return &verifier{
		cfg: cfg, redis: redis, mysql: mysql, holds: map[holdover.Token]*holdLooks{}, items: map[itemKey]*itemLooks{},
		rows: map[rowKey]*rowLooks{}, seed: maphash.MakeSeed(), out: Verification{Pod: cfg.Pod, Started: time.Now()},
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type verifier struct {
	cfg   VerifyConfig
	redis RedisState
	mysql MySQLState
	holds map[holdover.Token]*holdLooks // still in question
	items map[itemKey]*itemLooks
	rows  map[rowKey]*rowLooks
	lag   lag
	pace  pace
	seed  maphash.Seed
	out   Verification
}

// look takes one look at everything that is still in question; the first at
// everything there is.
func (v *verifier) look(ctx context.Context, first bool) error {
	if err := v.readLag(ctx); err != nil {
		return err
	}
	if first {
		redis, err := v.redisHolds(ctx)
		if err != nil {
			return err
		}
		mysql, err := v.mysqlHolds(ctx)
		if err != nil {
			return err
		}
		v.out.HoldsRedis, v.out.HoldsMySQL = len(redis), len(mysql)
		v.expect(len(redis))
		v.suspect(redis, mysql)
	}
	if err := v.lookHolds(ctx); err != nil {
		return err
	}
	return v.lookStock(ctx, first)
}

// settled reports whether another look can't change anything: an item needs
// all rounds, a hold two looks that say the same.
func (v *verifier) settled() bool {
	for _, h := range v.holds {
		if !h.stable {
			return false
		}
	}
	for _, r := range v.rows {
		if !r.stable {
			return false
		}
	}
	return len(v.items) == 0 && len(v.lag.late) == 0
}

// conclude sorts what is left into differences and unsettled.
func (v *verifier) conclude() {
	var found, moving []Difference
	for _, h := range v.holds {
		if h.stable {
			found = append(found, h.difference)
		} else {
			moving = append(moving, h.difference)
		}
	}
	for _, i := range v.items {
		if d, differs := i.verdict(); differs {
			d.Text += v.foreign(d)
			found = append(found, d)
			if d.Kind == DiffCounter {
				v.out.ForeignWrites = addTallies(v.out.ForeignWrites, []Tally{foreignWrite(d)})
			}
		} else {
			moving = append(moving, d)
		}
	}
	for _, r := range v.rows {
		if r.stable {
			found = append(found, r.difference)
		} else {
			moving = append(moving, r.difference)
		}
	}
	found = append(found, v.lag.differences(v.cfg.JournalAge)...)
	v.out.Journaled = len(v.lag.facts)
	if len(v.out.ForeignWrites) > 0 {
		v.out.Strangers = v.cfg.Strangers
	}
	for _, d := range found {
		if d.Kind == DiffPreDual {
			v.out.PreDual++
		}
	}
	v.out.Count += uint64(len(found))
	v.out.UnsettledCount += uint64(len(moving))
	v.out.all = firstOf(found, len(found))
	v.out.Differences = slices.Clip(v.out.all[:min(v.cfg.MaxDifferences, len(found))])
	v.out.Unsettled = firstOf(moving, v.cfg.MaxDifferences)
	v.out.Clean = v.out.Items > 0 && v.out.Count == 0 && v.out.UnsettledCount == 0
}

// foreign is what more there is to say of a counter that somebody else changed.
func (v *verifier) foreign(d Difference) string {
	if d.Kind != DiffCounter {
		return ""
	}
	text := "; somebody who is not holdover took units out of it"
	if d.Units > 0 {
		text = "; somebody who is not holdover put units into it"
	}
	if at := v.cfg.LastClean.At; at.IsZero() {
		text += ", and no verification was clean before"
	} else {
		text += fmt.Sprintf(" since the last clean verification, %s (%s ago)", at.UTC().Format(time.RFC3339), time.Since(at).Round(time.Second))
	}
	return text
}

func foreignWrite(d Difference) Tally {
	if d.Units < 0 {
		return Tally{Kind: KindForeignWrite, Direction: DirectionUndersell, Count: 1, Units: -d.Units}
	}
	return Tally{Kind: KindForeignWrite, Direction: DirectionOversell, Count: 1, Units: d.Units}
}

// firstOf sorts, so that two reports of one state are the same.
func firstOf(ds []Difference, n int) []Difference {
	slices.SortFunc(ds, compareDifferences)
	return slices.Clip(ds[:min(n, len(ds))])
}

func compareDifferences(a, b Difference) int {
	for _, c := range []int{
		strings.Compare(string(a.Kind), string(b.Kind)), compareInts(a.Shop, b.Shop), compareInts(a.Item, b.Item),
		compareInts(a.Group, b.Group), strings.Compare(a.Token, b.Token),
	} {
		if c != 0 {
			return c
		}
	}
	return 0
}

func compareInts(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

var errStuck = errors.New("the listing does not move on: the store answers with the same page again")
