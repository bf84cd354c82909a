package legacyredis_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/internal/reservertest"
	"holdover/internal/teststack"
	"holdover/legacyredis"
)

type pathRig struct {
	*rig
	*legacyredis.Path
	ledger *sqlLedger
}

func newPath(t *testing.T, change ...func(*legacyredis.PathConfig)) pathRig {
	t.Helper()
	r, ledger := newRig(t), newLedger(t)
	cfg := legacyredis.PathConfig{LedgerTimeout: 20 * time.Second, ClaimAge: time.Nanosecond}
	for _, c := range change {
		c(&cfg)
	}
	path, err := legacyredis.NewPath(r.Store, ledger, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return pathRig{r, path, ledger}
}

// stock brings units into ledger and counter.
func (p pathRig) stock(item, units int64) {
	p.t.Helper()
	p.ledger.add(p.t, shop, item, units)
	p.load(map[int64]int64{item: units})
}

func (p pathRig) wantLedger(item, want int64) {
	p.t.Helper()
	if got := p.ledger.available(p.t, shop, item); got != want {
		p.t.Errorf("the ledger has %d units of item %d, want %d", got, item, want)
	}
}

func TestConformance(t *testing.T) {
	reservertest.Run(t, func(t *testing.T) reservertest.Fixture {
		const maxLife = 6 * time.Hour
		p := newPath(t, func(c *legacyredis.PathConfig) { c.Limits.MaxLife = maxLife })
		return reservertest.Fixture{
			Reserver: p.Path, MaxLife: maxLife, Shop: shop, SumOverLocations: true,
			Load: func(t *testing.T, stock map[[2]int64]int64) {
				sum := make(map[int64]int64)
				for at, units := range stock {
					sum[at[0]] += units
				}
				for item, units := range sum {
					p.ledger.add(t, shop, item, units)
				}
				must[int](t)(p.Load(t.Context(), shop, sum, false))
			},
			Free: func(t *testing.T, item, _ int64) int64 {
				n, err := p.raw.Get(t.Context(), "inventory:"+itoa(shop)+":"+itoa(item)).Int64()
				if err != nil {
					t.Fatal(err)
				}
				return n
			},
			Ledger: func(t *testing.T, item int64) int64 { return p.ledger.available(t, shop, item) },
			Expire: func(t *testing.T) {
				if _, err := p.Sweep(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			WaitExpired: func(t *testing.T, token holdover.Token) {
				expires, err := p.raw.HGet(t.Context(), "hold:"+token.String(), "expires_ms").Int64()
				if err != nil {
					t.Fatal(err)
				}
				eventually(t, "the hold has expired by Redis's clock", func() bool {
					now, err := p.raw.Time(t.Context()).Result()
					return err == nil && now.UnixMilli() >= expires
				})
			},
		}
	})
}

// A claim whose ledger gives no answer is pending: the hold neither expires nor
// can be released, and a sweep deducts it once when the ledger is back.
func TestPendingClaimIsRolledForward(t *testing.T) {
	for _, fault := range []string{"away", "answer lost"} {
		t.Run(fault, func(t *testing.T) {
			p := newPath(t)
			p.stock(item, 10)
			ctx := t.Context()
			token := holdover.NewToken()
			must[holdover.Result](t)(p.Reserve(ctx, request(token, line(item, 2))))
			flag := &p.ledger.away
			if fault == "answer lost" {
				flag = &p.ledger.lost
			}
			flag.Store(true)
			for range 2 {
				if got := must[holdover.Result](t)(p.Claim(ctx, shop, token)); !got.Pending || got.Hold.State != holdover.StateClaiming {
					t.Errorf("claim is %+v, want pending", got)
				}
			}
			_, err := p.Release(ctx, shop, token)
			wantErr(t, "release", err, holdover.ErrClaimPending)
			if swept, err := p.Sweep(ctx); err == nil || swept.Failed != 1 || swept.Claimed != 0 {
				t.Errorf("sweep without the ledger: %+v, %v", swept, err)
			}

			flag.Store(false)
			if swept, err := p.Sweep(ctx); err != nil || swept.Claimed != 1 {
				t.Errorf("sweep with the ledger: %+v, %v", swept, err)
			}
			if swept, err := p.Sweep(ctx); err != nil || swept != (legacyredis.Swept{}) {
				t.Errorf("next sweep: %+v, %v", swept, err)
			}
			if got := must[holdover.Result](t)(p.Claim(ctx, shop, token)); got.Pending || !got.Replayed || got.Hold.State != holdover.StateClaimed {
				t.Errorf("claim is %+v, want replayed", got)
			}
			p.wantLedger(item, 8)
			p.wantCounter(item, 8)
		})
	}
}

// The ledger may know that the hold had ended: then Redis follows it, and the
// units come back.
func TestClaimThatTheLedgerRefuses(t *testing.T) {
	p := newPath(t, func(c *legacyredis.PathConfig) { c.Limits.NoLateClaims = true })
	p.stock(item, 10)
	token := holdover.NewToken()
	must[holdover.Result](t)(p.Reserve(t.Context(), request(token, line(item, 2))))
	p.ledger.ended.Store(true)
	_, err := p.Claim(t.Context(), shop, token)
	var ended *holdover.EndedError
	if !errors.As(err, &ended) || ended.State != holdover.StateExpired {
		t.Errorf("error is %v, want ended: expired", err)
	}
	p.wantCounter(item, 10)
	p.wantLedger(item, 10)
}

// Pitfall 12: holds that can't be ended, at the head of the index and more than
// a batch of them, don't keep the others from being swept.
func TestSweepPassesBadHolds(t *testing.T) {
	p := newPath(t, func(c *legacyredis.PathConfig) { c.SweepBatch = 3 })
	ctx := t.Context()
	p.stock(item, 100)
	p.stock(item2, 100)
	expired := func(items, ms int64) {
		h := fact(holdover.NewToken(), holdover.StateHeld, line(items, 1))
		h.ExpiresAt = time.UnixMilli(ms)
		must[holdover.Hold](t)(p.Store.Apply(ctx, h))
	}
	for i := range int64(7) {
		expired(item2, 10+i)
	}
	for i := range int64(8) {
		expired(item, 20+i)
	}
	p.raw.Set(ctx, "inventory:"+itoa(shop)+":"+itoa(item2), "broken", 0)
	swept, err := p.Sweep(ctx)
	if swept.Expired != 8 || swept.Failed != 7 || err == nil {
		t.Errorf("swept %+v, %v; want 8 expired and 7 failed", swept, err)
	}
	p.wantCounter(item, 100)
	p.raw.Set(ctx, "inventory:"+itoa(shop)+":"+itoa(item2), "93", 0)
	if swept, err := p.Sweep(ctx); swept.Expired != 7 || err != nil {
		t.Errorf("then swept %+v, %v; want the other 7", swept, err)
	}
	p.wantCounter(item2, 100)
}

func TestRunSweepsUntilItsContextEnds(t *testing.T) {
	teststack.NoLeaks(t)
	p := newPath(t, func(c *legacyredis.PathConfig) { c.SweepEvery = time.Millisecond })
	p.stock(item, 5)
	r := request(holdover.NewToken(), line(item, 5))
	r.TTL = 100 * time.Millisecond
	must[holdover.Result](t)(p.Reserve(t.Context(), r))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.Run(ctx) })
	eventually(t, "the units are back", func() bool { return p.counter(item) == 5 })
	cancel()
	running.Wait()
}

func TestNewPathChecksItsConfig(t *testing.T) {
	r := newRig(t)
	for name, cfg := range map[string]legacyredis.PathConfig{
		"negative time": {ClaimAge: -1}, "huge batch": {SweepBatch: 5000}, "negative batch": {SweepBatch: -1},
	} {
		_, err := legacyredis.NewPath(r.Store, &sqlLedger{}, cfg)
		wantErr(t, name, err, holdover.ErrInvalid)
	}
	_, err := legacyredis.NewPath(r.Store, nil, legacyredis.PathConfig{})
	wantErr(t, "no ledger", err, holdover.ErrInvalid)
}

// Pitfall 42, in both orders: what the old system's claim does to the stock when
// it crashes half way. One unit in stock throughout.
func TestLegacyClaimFaults(t *testing.T) {
	crash := errors.New("the power went out")
	claim := func(t *testing.T, order legacyredis.LegacyOrder) (pathRig, holdover.Token) {
		p := newPath(t)
		p.stock(item, 1)
		token := holdover.NewToken()
		must[holdover.Result](t)(p.Reserve(t.Context(), request(token, line(item, 1))))
		wantErr(t, "the claim", p.LegacyClaim(t.Context(), order, shop, token, func() error { return crash }), crash)
		return p, token
	}
	another := func(t *testing.T, p pathRig) error {
		_, err := p.Reserve(t.Context(), request(holdover.NewToken(), line(item, 1)))
		return err
	}
	resync := func(t *testing.T, p pathRig) int64 {
		return must[int64](t)(p.Resync(t.Context(), shop, item, p.ledger.available(t, shop, item)))
	}

	t.Run("redis first oversells", func(t *testing.T) {
		p, _ := claim(t, legacyredis.RedisFirst)
		if n := resync(t, p); n != 1 {
			t.Errorf("counter is %d, want the sold unit back to life", n)
		}
		if err := another(t, p); err != nil {
			t.Errorf("the second buyer gets %v, want the fault: the same unit", err)
		}
	})
	t.Run("ledger first undersells", func(t *testing.T) {
		p, _ := claim(t, legacyredis.LedgerFirst)
		p.ledger.add(t, shop, item, 1) // a restock of one unit
		p.wantLedger(item, 1)
		if n := resync(t, p); n != 0 {
			t.Errorf("counter is %d, want the new unit taken by the hold of the sold one", n)
		}
		wantErr(t, "the buyer of a unit that is there", another(t, p), holdover.ErrOutOfStock)
	})
	t.Run("ledger first oversells when the hold expires", func(t *testing.T) {
		p, token := claim(t, legacyredis.LedgerFirst)
		p.raw.HSet(t.Context(), "hold:"+token.String(), "expires_ms", "1")
		p.raw.ZAdd(t.Context(), "holds", zMember(1, token.String()))
		if _, err := p.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.wantLedger(item, 0)
		if err := another(t, p); err != nil {
			t.Errorf("the second buyer gets %v, want the fault: the same unit", err)
		}
	})
	// The same crashes on the repaired path: after mark, and after the ledger.
	for _, fault := range []string{"after the mark", "after the ledger"} {
		t.Run("the mark repairs a crash "+fault, func(t *testing.T) {
			p := newPath(t)
			p.stock(item, 1)
			token := holdover.NewToken()
			must[holdover.Result](t)(p.Reserve(t.Context(), request(token, line(item, 1))))
			p.ledger.away.Store(fault == "after the mark")
			p.ledger.lost.Store(fault == "after the ledger")
			must[holdover.Result](t)(p.Claim(t.Context(), shop, token))
			p.ledger.away.Store(false)
			p.ledger.lost.Store(false)
			if _, err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.wantLedger(item, 0)
			if n := resync(t, p); n != 0 {
				t.Errorf("counter is %d, want 0", n)
			}
			wantErr(t, "another buyer", another(t, p), holdover.ErrOutOfStock)
		})
	}
	t.Run("without a crash both orders are right", func(t *testing.T) {
		for _, order := range []legacyredis.LegacyOrder{legacyredis.RedisFirst, legacyredis.LedgerFirst} {
			p := newPath(t)
			p.stock(item, 3)
			token := holdover.NewToken()
			must[holdover.Result](t)(p.Reserve(t.Context(), request(token, line(item, 1))))
			if err := p.LegacyClaim(t.Context(), order, shop, token, func() error { return nil }); err != nil {
				t.Errorf("%s: %v", order, err)
			}
			p.wantLedger(item, 2)
			if n := resync(t, p); n != 2 {
				t.Errorf("%s: counter is %d, want 2", order, n)
			}
			wantErr(t, "a second claim", p.LegacyClaim(t.Context(), order, shop, token, func() error { return nil }), holdover.ErrUnknownHold)
		}
	})
}

func TestResyncCountsMarkedHolds(t *testing.T) {
	p := newPath(t)
	p.stock(item, 10)
	p.stock(item2, 10)
	for range 2 {
		must[holdover.Result](t)(p.Reserve(t.Context(), request(holdover.NewToken(), line(item, 2), line(item2, 1))))
	}
	marked := holdover.NewToken()
	must[holdover.Result](t)(p.Reserve(t.Context(), request(marked, line(item, 1))))
	must[holdover.Hold](t)(p.Mark(t.Context(), 0, 0, marked, nil))
	p.raw.Set(t.Context(), "inventory:"+itoa(shop)+":"+itoa(item), "77", 0)
	if n := must[int64](t)(p.Resync(t.Context(), shop, item, 10)); n != 5 {
		t.Errorf("counter is %d, want 10 - 2*2 - 1", n)
	}
	p.wantCounter(item, 5)
}
