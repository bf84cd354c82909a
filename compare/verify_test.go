package compare

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdover"
)

// verify runs in a bubble, whose clock passes Recheck at once.
func verify(t *testing.T, w *world, cfg VerifyConfig) (v Verification) {
	t.Helper()
	cfg.Pod = "p"
	setDefault(&cfg.PageSize, 3)
	synctest.Test(t, func(t *testing.T) {
		var err error
		if v, err = Verify(t.Context(), redisTable{w}, mysqlTable{w}, cfg); err != nil {
			t.Fatal(err)
		}
	})
	if v.Clean != (v.Items > 0 && v.Count == 0 && v.UnsettledCount == 0) || int(v.Count) < len(v.Differences) {
		t.Errorf("inconsistent: %+v", v)
	}
	return v
}

func TestVerifyAgreement(t *testing.T) {
	w := newWorld()
	for i := range 10 {
		w.reserve(1+int64(i%2), 2)
	}
	w.end(w.reserve(1, 3), holdover.StateReleased)
	w.end(w.reserve(1, 3), holdover.StateClaimed)
	claiming := w.reserve(2, 4)
	w.endRedis(claiming, holdover.StateClaiming) // marked, the ledger not written
	applied := w.reserve(2, 5)
	w.endRedis(applied, holdover.StateClaiming) // marked, the ledger written, the mark not cleared
	w.endMySQL(applied, holdover.StateClaimed)
	v := verify(t, w, VerifyConfig{})
	if !v.Clean || v.HoldsRedis != 12 || v.HoldsMySQL != 11 || v.Items != 2 || v.Rows != 4 || v.Rounds != 1 {
		t.Errorf("%s: %+v", v.Summary(), v)
	}
}

func TestVerifyFindsPlantedDifferences(t *testing.T) {
	hold := func(q int64) holdover.Hold {
		return holdover.Hold{
			Token: holdover.NewToken(), Shop: 1, State: holdover.StateHeld, Firm: true, GrantedAt: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: q}},
		}
	}
	for name, tc := range map[string]struct {
		plant func(*world)
		cfg   VerifyConfig
		want  DifferenceKind
		units int64
	}{
		"missing in mysql": {func(w *world) { w.takeRedis(hold(3)) }, VerifyConfig{}, DiffOnlyInRedis, 3},
		"older than dual writing": {func(w *world) { w.takeRedis(hold(3)) },
			VerifyConfig{DualSince: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}, DiffPreDual, 3},
		"younger than dual writing": {func(w *world) { w.takeRedis(hold(3)) },
			VerifyConfig{DualSince: time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC)}, DiffOnlyInRedis, 3},
		"extra in mysql":      {func(w *world) { w.takeMySQL(hold(4)) }, VerifyConfig{}, DiffOnlyInMySQL, 4},
		"ended in mysql only": {func(w *world) { w.endMySQL(w.reserve(1, 2), holdover.StateReleased) }, VerifyConfig{}, DiffOnlyInRedis, 2},
		"ended in redis only": {func(w *world) { w.endRedis(w.reserve(1, 2), holdover.StateReleased) }, VerifyConfig{}, DiffOnlyInMySQL, 2},
		"tentative": {func(w *world) {
			h := hold(1)
			w.takeRedis(h)
			h.Firm = false
			w.takeMySQL(h)
		}, VerifyConfig{}, DiffNotFirm, 1},
		"other lines": {func(w *world) {
			h := hold(1)
			w.takeRedis(h)
			h.Lines = []holdover.Line{{Item: 1, Group: 2, Quantity: 1}}
			w.takeMySQL(h)
		}, VerifyConfig{}, DiffLines, 1},
		"an extension is missing in mysql": {func(w *world) {
			h := hold(1)
			h.ExpiresAt = h.GrantedAt.Add(time.Hour)
			w.takeMySQL(h)
			h.ExpiresAt = h.GrantedAt.Add(2 * time.Hour)
			w.takeRedis(h)
		}, VerifyConfig{}, DiffExpiry, 1},
		"an expiry beyond the skew": {func(w *world) {
			h := hold(1)
			h.ExpiresAt = h.GrantedAt.Add(time.Hour)
			w.takeMySQL(h)
			h.ExpiresAt = h.ExpiresAt.Add(time.Minute + time.Millisecond)
			w.takeRedis(h)
		}, VerifyConfig{ExpirySkew: time.Minute}, DiffExpiry, 1},
		"foreign write down": {func(w *world) { w.foreignWrite(2, -7) }, VerifyConfig{}, DiffCounter, -7},
		"foreign write up":   {func(w *world) { w.foreignWrite(2, 7) }, VerifyConfig{}, DiffCounter, 7},
		"counter not loaded": {func(w *world) { delete(w.counter, itemKey{1, 2}) }, VerifyConfig{}, DiffCounterMissing, 200},
		"issued too much":    {func(w *world) { w.changeStock(rowKey{1, 2, 1}, func(s *holdover.Stock) { s.Issued += 2 }) }, VerifyConfig{}, DiffConservation, 2},
		"issued over available": {func(w *world) {
			w.changeStock(rowKey{1, 2, 1}, func(s *holdover.Stock) { s.Issued, s.Pooled = 109, 109 })
		}, VerifyConfig{}, DiffConservation, 9},
		"no ledger row": {func(w *world) {
			for g := int64(1); g <= 2; g++ {
				delete(w.stock, rowKey{1, 2, g})
			}
			h := hold(6)
			h.Lines[0].Item = 2
			w.takeRedis(h)
			w.mysql[h.Token] = h
		}, VerifyConfig{}, DiffLedgerMissing, 6},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.reserve(1, 5)
			tc.plant(w)
			v := verify(t, w, tc.cfg)
			if v.Clean || v.Count != 1 || v.UnsettledCount != 0 || len(v.Differences) != 1 {
				t.Fatalf("%s\n%v\nunsettled %v", v.Summary(), v.Differences, v.Unsettled)
			}
			d := v.Differences[0]
			if d.Kind != tc.want || d.Units != tc.units || d.Text == "" {
				t.Errorf("got %+v, want %s of %d units", d, tc.want, tc.units)
			}
			if (v.PreDual == 1) != (tc.want == DiffPreDual) {
				t.Errorf("%d pre-dual", v.PreDual)
			}
			if tc.want == DiffCounter {
				want := Tally{KindForeignWrite, DirectionOversell, 1, 7}
				if tc.units < 0 {
					want.Direction = DirectionUndersell
				}
				if len(v.ForeignWrites) != 1 || v.ForeignWrites[0] != want {
					t.Errorf("foreign writes %v, want %v", v.ForeignWrites, want)
				}
			}
			if v.Took < 15*time.Second {
				t.Errorf("concluded after %s, within the re-check window", v.Took)
			}
		})
	}
}

func TestVerifyNoStockIsNotClean(t *testing.T) {
	w := newWorld()
	clear(w.stock)
	if v := verify(t, w, VerifyConfig{}); v.Clean || !strings.Contains(v.Summary(), "nothing to verify") {
		t.Errorf("%s", v.Summary())
	}
}

// What differs only because the mirror is behind, or the reads were not at
// one moment, drops out.
func TestVerifyLagSettles(t *testing.T) {
	w := newWorld()
	late := holdover.Hold{Token: holdover.NewToken(), Shop: 1, State: holdover.StateHeld, Firm: true, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}}
	w.takeRedis(late)
	ends := w.reserve(2, 2)
	w.endRedis(ends, holdover.StateReleased)
	w.foreignWrite(2, 1) // and a correction that is under way
	var v Verification
	synctest.Test(t, func(t *testing.T) {
		go func() {
			time.Sleep(10 * time.Second) // the bubble's clock: within the window
			w.takeMySQL(late)
			w.endMySQL(ends, holdover.StateReleased)
			w.foreignWrite(2, -1)
		}()
		var err error
		if v, err = Verify(t.Context(), redisTable{w}, mysqlTable{w}, VerifyConfig{Pod: "p"}); err != nil {
			t.Fatal(err)
		}
	})
	if !v.Clean || v.Rounds != 2 {
		t.Errorf("%s\n%v %v", v.Summary(), v.Differences, v.Unsettled)
	}
}

// An item that is sold between any two reads can't be read; it must be called
// neither clean nor different, foreign write or not.
func TestVerifyMotionIsUnsettled(t *testing.T) {
	for _, foreign := range []int64{0, 5} {
		w := newWorld()
		w.foreignWrite(1, foreign)
		n := int64(0)
		w.read = func(what string) {
			if n++; what == "redis holds" || what == "counters" {
				w.reserve(1, 1+n%3)
			}
		}
		v := verify(t, w, VerifyConfig{PageSize: 1000, PagesPerSecond: -1})
		if v.Clean || v.UnsettledCount != 1 || len(v.Unsettled) != 1 || v.Unsettled[0].Item != 1 {
			t.Errorf("foreign %d: %s\n%v %v", foreign, v.Summary(), v.Differences, v.Unsettled)
		}
		for _, d := range v.Differences {
			t.Errorf("foreign %d: a difference in motion: %s", foreign, d)
		}
	}
}

// Motion that pauses now and then is enough to read an item.
func TestVerifyReadsBetweenTheMotion(t *testing.T) {
	for foreign, clean := range map[int64]bool{0: true, 5: false} {
		w := newWorld()
		w.foreignWrite(1, foreign)
		n := 0
		w.read = func(string) {
			if n++; n%13 == 0 { // a try reads an item in about 7 calls
				w.end(w.reserve(1, 1), holdover.StateClaimed)
			}
		}
		v := verify(t, w, VerifyConfig{PageSize: 1000, PagesPerSecond: -1})
		if v.Clean != clean || v.UnsettledCount != 0 {
			t.Errorf("foreign %d: %s\n%v %v", foreign, v.Summary(), v.Differences, v.Unsettled)
		}
		if !clean && (v.Count != 1 || v.Differences[0].Units != foreign) {
			t.Errorf("foreign %d: %v", foreign, v.Differences)
		}
	}
}

// A hold that differs in a new way at each look is in motion.
func TestVerifyChangingHoldIsUnsettled(t *testing.T) {
	w := newWorld()
	h := holdover.Hold{Token: holdover.NewToken(), Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}}
	w.takeRedis(h)
	w.takeMySQL(h)
	w.read = func(what string) {
		if what == "mysql lookup" {
			w.mu.Lock()
			defer w.mu.Unlock()
			h.Lines = []holdover.Line{{Item: 1, Group: 1, Quantity: h.Lines[0].Quantity + 1}}
			w.mysql[h.Token] = h
		}
	}
	v := verify(t, w, VerifyConfig{})
	if v.Clean || v.Count != 0 || v.UnsettledCount != 1 || v.Rounds != 3 {
		t.Errorf("%s\n%v %v", v.Summary(), v.Differences, v.Unsettled)
	}
}

func TestVerifyClaimedAgainstReleased(t *testing.T) {
	w := newWorld()
	token := w.reserve(1, 2)
	once := false
	w.read = func(what string) { // live at the listing, ended differently by the look
		if what == "redis lookup" && !once {
			once = true
			w.endRedis(token, holdover.StateClaimed)
			w.endMySQL(token, holdover.StateReleased)
		}
	}
	h := w.mysql[token]
	h.Firm = false
	w.mysql[token] = h
	v := verify(t, w, VerifyConfig{})
	kinds := map[DifferenceKind]int64{}
	for _, d := range v.Differences {
		kinds[d.Kind] = d.Units
	}
	// The ledger still has what Redis's counter gave away for good.
	if len(kinds) != 2 || kinds[DiffEndedDifferently] != 2 || kinds[DiffCounter] != -2 {
		t.Errorf("%s\n%v", v.Summary(), v.Differences)
	}
}

// A claim of a part is being made: Redis keeps the part, MySQL still the hold.
// Each clock has its own expiry, and one that MySQL alone has later ends nothing.
func TestVerifyPartsAndExpiries(t *testing.T) {
	w := newWorld()
	part := func(token holdover.Token, units int64) {
		h := w.redis[token]
		h.State, h.Claimed = holdover.StateClaiming, []holdover.Line{{Item: 1, Group: 1, Quantity: units}}
		w.redis[token] = h
		w.counter[itemKey{1, 1}] += h.Lines[0].Quantity - units
	}
	part(w.reserve(1, 5), 2)
	done := w.reserve(1, 4) // in the ledger, and not yet cleared in Redis
	part(done, 1)
	w.endMySQL(done, holdover.StateReleased)
	w.changeStock(rowKey{1, 1, 1}, func(s *holdover.Stock) { s.Available-- })
	h := w.mysql[done]
	h.State, h.Claimed = holdover.StateClaimed, w.redis[done].Claimed
	w.mysql[done] = h
	for _, later := range []time.Duration{4 * time.Second, -2 * time.Hour} { // in Redis than in MySQL
		token := w.reserve(2, 1)
		h := w.redis[token]
		h.ExpiresAt = time.Now().Add(3 * time.Hour)
		w.mysql[token] = h
		h.ExpiresAt = h.ExpiresAt.Add(later)
		w.redis[token] = h
	}
	if v := verify(t, w, VerifyConfig{}); !v.Clean {
		t.Errorf("%s\n%v\n%v", v.Summary(), v.Differences, v.Unsettled)
	}
	// The rest did not come back.
	w.foreignWrite(1, -3)
	if v := verify(t, w, VerifyConfig{}); v.Clean || len(v.Differences) != 1 || v.Differences[0].Units != -3 {
		t.Errorf("%s\n%v", v.Summary(), v.Differences)
	}
}

// Claimed in both, in other lines: the ledger took what Redis's counter did not.
func TestVerifyClaimedInOtherLines(t *testing.T) {
	w := newWorld()
	token := w.reserve(1, 3)
	once := false
	w.read = func(what string) { // live at the listing, claimed by the look
		if what == "redis lookup" && !once {
			once = true
			h := w.redis[token]
			h.State, h.Claimed = holdover.StateClaimed, []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}
			w.redis[token] = h
			w.endMySQL(token, holdover.StateClaimed)
		}
	}
	h := w.mysql[token]
	h.Firm = false
	w.mysql[token] = h
	v := verify(t, w, VerifyConfig{})
	if len(v.Differences) != 1 || v.Differences[0].Kind != DiffEndedDifferently {
		t.Errorf("%s\n%v", v.Summary(), v.Differences)
	}
}

func TestVerifyListsAreCappedCountsAreNot(t *testing.T) {
	w := newWorld()
	for range 30 {
		w.takeRedis(holdover.Hold{Token: holdover.NewToken(), Shop: 1, State: holdover.StateHeld, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}})
	}
	if v := verify(t, w, VerifyConfig{MaxDifferences: 4}); v.Count != 30 || len(v.Differences) != 4 {
		t.Errorf("%d counted, %d listed", v.Count, len(v.Differences))
	}
	v := verify(t, w, VerifyConfig{MaxRechecks: 20})
	if v.Count != 20 || v.UnsettledCount != 10 || v.Clean {
		t.Errorf("over the bound: %d differences, %d unsettled", v.Count, v.UnsettledCount)
	}
}

func TestVerifyFailures(t *testing.T) {
	down := &holdover.StoreError{Store: holdover.StoreRedis, Pod: "p", Op: "list holds", Err: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		spoil func(*world)
		cfg   VerifyConfig
		is    error
	}{
		"redis down":   {func(w *world) { w.fail = down }, VerifyConfig{Pod: "p"}, holdover.ErrUnavailable},
		"mysql hangs":  {func(w *world) { w.hang = true }, VerifyConfig{Pod: "p"}, context.DeadlineExceeded},
		"stuck":        {func(w *world) { w.stuck = true }, VerifyConfig{Pod: "p"}, errStuck},
		"no pod":       {func(*world) {}, VerifyConfig{}, holdover.ErrInvalid},
		"one look":     {func(*world) {}, VerifyConfig{Pod: "p", Rounds: 1}, holdover.ErrInvalid},
		"short window": {func(*world) {}, VerifyConfig{Pod: "p", Recheck: -1}, holdover.ErrInvalid},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.reserve(1, 1)
			tc.spoil(w)
			v, err := Verify(t.Context(), redisTable{w}, mysqlTable{w}, tc.cfg)
			if !errors.Is(err, tc.is) || v.Clean {
				t.Errorf("%s: %v, clean %v", name, err, v.Clean)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // given up within the window
		w := newWorld()
		w.foreignWrite(1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Verify(ctx, redisTable{w}, mysqlTable{w}, VerifyConfig{Pod: "p"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// Sales, claims and releases go on while it verifies, in real time and with
// the race detector: nothing is called different.
func TestVerifyUnderTraffic(t *testing.T) {
	w := newWorld()
	w.counter[itemKey{1, 1}] += 1 << 40
	w.changeStock(rowKey{1, 1, 1}, func(s *holdover.Stock) { s.Available += 1 << 40 })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() {
			var ended []holdover.Token // their records are kept for a while
			for n := worker; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if len(ended) == 20 {
					w.forget(ended)
					ended = ended[:0]
				}
				token := w.reserve(1, 1)
				switch n % 3 {
				case 0:
					w.end(token, holdover.StateReleased)
				case 1:
					w.endRedis(token, holdover.StateClaiming)
					w.endMySQL(token, holdover.StateClaimed)
					w.endRedis(token, holdover.StateClaimed)
				default:
					w.end(token, holdover.StateExpired)
				}
				ended = append(ended, token)
			}
		})
	}
	for range 5 {
		v, err := Verify(t.Context(), redisTable{w}, mysqlTable{w}, VerifyConfig{Pod: "p", Recheck: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if v.Count != 0 {
			t.Errorf("%s\n%v", v.Summary(), v.Differences)
		}
	}
	close(stop)
	wg.Wait()
	if v := verify(t, w, VerifyConfig{}); !v.Clean {
		t.Errorf("after the traffic: %s\n%v %v", v.Summary(), v.Differences, v.Unsettled)
	}
}
