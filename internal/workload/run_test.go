package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"holdover"
	"holdover/internal/model"
)

// pod is a model with a run's stock, and faults to plant in front of it.
type pod struct {
	*model.Model
	stock []holdover.Stock
	// before may answer instead of the model; nil err and false: it does not.
	before func(op string, r holdover.Request) (holdover.Result, error, bool)
	// after may change what the buyer is told.
	after func(op string, token holdover.Token, res holdover.Result, err error) (holdover.Result, error)
}

func newPod(t *testing.T, cfg Config) *pod {
	t.Helper()
	p := &pod{Model: model.New(model.Config{Now: time.Now})}
	var err error
	if p.stock, err = Stock(cfg); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.stock {
		p.Load(s.Shop, map[[2]int64]int64{{s.Item, s.Group}: s.Available})
	}
	return p
}

func (p *pod) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	if p.before != nil {
		if res, err, done := p.before("reserve", r); done {
			return res, err
		}
	}
	res, err := p.Model.Reserve(ctx, r)
	if p.after != nil {
		return p.after("reserve", r.Token, res, err)
	}
	return res, err
}

func (p *pod) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	res, err := p.Model.Claim(ctx, shop, token, lines...)
	if p.after != nil {
		return p.after("claim", token, res, err)
	}
	return res, err
}

func (p *pod) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	res, err := p.Model.Release(ctx, shop, token)
	if p.after != nil {
		return p.after("release", token, res, err)
	}
	return res, err
}

// read makes a reading of the model, which has one location for each item here.
func (p *pod) read(t *testing.T, a *Account) Reading {
	t.Helper()
	r := Reading{Now: p.Now(), Ledger: map[holdover.Stock]int64{}, MySQL: map[holdover.Token]StoredHold{}}
	for _, s := range p.stock {
		s.Available = 0
		r.Ledger[s] = p.Ledger(s.Shop, s.Item)
	}
	for token, rec := range a.records {
		res, err := p.Lookup(t.Context(), rec.shop, token)
		if errors.Is(err, holdover.ErrUnknownHold) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r.MySQL[token] = StoredHold{rec.shop, res.Hold.State, res.Hold.Lines}
		if res.Hold.State == holdover.StateClaimed {
			for _, l := range res.Hold.Part() {
				r.Entries = append(r.Entries, Entry{token, rec.shop, l.Item, l.Group, -l.Quantity, "claim"})
			}
		}
	}
	return r
}

// small is a run that ends by itself in well under a second of the bubble's time.
func small() Config {
	return Config{
		Seed: 11, Shops: []int64{1, 2}, Items: 20, SmallCarts: true, HotItem: 900, HotShare: 0.3, HotStock: 20,
		Clients: 8, MaxBuyers: 400, ThinkMin: time.Millisecond, ThinkMax: 20 * time.Millisecond,
		PaymentFail: 0.2, Abandon: 0.1, TTL: 500 * time.Millisecond,
	}
}

// shopping runs cfg on p in a bubble of time and judges it.
func shopping(t *testing.T, cfg Config, p *pod, audit AuditConfig) (Stats, Counts, Verdict) {
	t.Helper()
	a := NewAccount(AccountConfig{})
	stats, err := Run(t.Context(), cfg, []holdover.Reserver{p, p}, a)
	if err != nil {
		t.Fatal(err)
	}
	audit.Stock, audit.Stage = p.stock, holdover.StageMySQLOnly
	v, err := Judge(a, p.read(t, a), audit)
	if err != nil {
		t.Fatal(err)
	}
	return stats, a.Counts(), v
}

func TestRunOnASoundPod(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"closed loop": func(*Config) {},
		"open loop":   func(c *Config) { c.Rate = 500 },
		"real carts": func(c *Config) {
			c.SmallCarts, c.Items, c.Scarce, c.ScarceRate = false, 100, 1, 0.2
		},
		"baskets of a file": func(c *Config) {
			c.Baskets = []Basket{{1, []int64{7, 8}}, {2, []int64{9}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small()
				change(&cfg)
				stats, counts, v := shopping(t, cfg, newPod(t, cfg), AuditConfig{})
				if !v.OK || v.UnknownTokens != 0 || stats.Shed != 0 || stats.GaveUp != 0 {
					t.Errorf("stats %+v, verdict %+v", stats, v)
				}
				if stats.Arrivals != 400 || counts.Tokens != 400 {
					t.Errorf("%d arrivals and %d tokens, want 400", stats.Arrivals, counts.Tokens)
				}
				if counts.Refused == 0 || counts.Claimed == 0 || counts.Released == 0 || counts.Claimed+counts.Released >= counts.Granted {
					t.Errorf("not a mix of fates: %+v", counts)
				}
			})
		})
	}
}

func TestRunFollowsItsSeed(t *testing.T) {
	cfg, err := small().withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	intents := func(seed uint64) string {
		c := cfg
		c.Seed = seed
		s := &shop{cfg: c, basket: basketSource(c)}
		text := ""
		for n := range uint64(30) {
			in, _ := s.intend(n)
			text += fmt.Sprintln(in)
		}
		return text
	}
	if first, again := intents(1), intents(1); first != again {
		t.Error("two runs with one seed differ")
	}
	if intents(1) == intents(2) {
		t.Error("two seeds make the same run")
	}
}

func TestRunRepeatsWithTheSameToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		p := newPod(t, cfg)
		// Every third answer is lost, whatever the call did.
		var calls atomic.Int64
		p.after = func(op string, token holdover.Token, res holdover.Result, err error) (holdover.Result, error) {
			if calls.Add(1)%3 == 0 {
				return holdover.Result{}, &holdover.StoreError{Store: holdover.StoreMySQL, Op: op, Token: token, Unknown: true, Err: errors.New("the reply was lost")}
			}
			return res, err
		}
		stats, counts, v := shopping(t, cfg, p, AuditConfig{})
		if !v.OK || counts.NoAnswer < 100 || counts.Calls < counts.Tokens+counts.NoAnswer {
			t.Errorf("stats %+v, counts %+v, verdict %+v", stats, counts, v)
		}
	})
}

func TestRunGivesUpAfterItsRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		cfg.Retries, cfg.MaxBuyers = 2, 10
		p := newPod(t, cfg)
		p.before = func(op string, r holdover.Request) (holdover.Result, error, bool) {
			return holdover.Result{}, &holdover.StoreError{Store: holdover.StoreMySQL, Op: op, Err: errors.New("refused")}, true
		}
		stats, counts, v := shopping(t, cfg, p, AuditConfig{})
		if stats.GaveUp != 10 || counts.Calls != 30 || v.UnknownTokens != 10 || v.UnknownKept != 0 || v.faults() != 0 {
			t.Errorf("stats %+v, counts %+v, verdict %+v", stats, counts, v)
		}
	})
}

func TestOpenLoopShedsOverItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		cfg.Rate, cfg.MaxInFlight, cfg.MaxBuyers = 1000, 3, 200
		cfg.ThinkMin, cfg.ThinkMax = 100*time.Millisecond, 100*time.Millisecond
		p := newPod(t, cfg)
		var inside, most atomic.Int64
		p.before = func(string, holdover.Request) (holdover.Result, error, bool) {
			most.Store(max(most.Load(), inside.Add(1)))
			time.Sleep(10 * time.Millisecond) // the bubble's time
			inside.Add(-1)
			return holdover.Result{}, nil, false
		}
		stats, counts, v := shopping(t, cfg, p, AuditConfig{})
		if stats.Arrivals != 200 || stats.Shed == 0 || stats.Shed+counts.Tokens != 200 || most.Load() > 3 || !v.OK {
			t.Errorf("stats %+v, counts %+v, %d at once, verdict %+v", stats, counts, most.Load(), v)
		}
	})
}

func TestBuyersFinishAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		cfg.MaxBuyers, cfg.Clients, cfg.TTL = 0, 5, time.Hour
		cfg.ThinkMin, cfg.ThinkMax = time.Second, time.Second
		cfg.PaymentFail, cfg.Abandon, cfg.HotShare, cfg.HotItem = 0, 0, 0, 0
		p := newPod(t, cfg)
		a := NewAccount(AccountConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := Run(ctx, cfg, []holdover.Reserver{p}, a); err != nil {
			t.Fatal(err)
		}
		if c := a.Counts(); c.Granted != 5 || c.Claimed != 5 || time.Since(began) != time.Second {
			t.Errorf("%+v after %s, want 5 claims after their second of thinking", c, time.Since(began))
		}
		// And not for ever.
		cfg.Finish = 300 * time.Millisecond
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began, a = time.Now(), NewAccount(AccountConfig{})
		if _, err := Run(ctx, cfg, []holdover.Reserver{p}, a); err != nil {
			t.Fatal(err)
		}
		if c := a.Counts(); c.Granted != 5 || c.Claimed != 0 || time.Since(began) != 400*time.Millisecond {
			t.Errorf("%+v after %s, want no claim and the end after 400ms", c, time.Since(began))
		}
	})
}

func TestRunEndsWithAFullAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, rate := range []float64{0, 1000} {
			cfg := small()
			cfg.MaxBuyers, cfg.Rate = 0, rate
			a := NewAccount(AccountConfig{MaxTokens: 30})
			if _, err := Run(t.Context(), cfg, []holdover.Reserver{newPod(t, cfg)}, a); !errors.Is(err, ErrAccountFull) {
				t.Errorf("error %v, want that the account is full", err)
			}
			if c := a.Counts(); c.Tokens != 30 {
				t.Errorf("%d tokens, want the limit of 30", c.Tokens)
			}
		}
	})
}

// Pods with one planted fault each: the audit must see it, and call it by its name.
func TestMutantsAreCaught(t *testing.T) {
	tests := []struct {
		name  string
		plant func(p *pod)
		sees  func(v Verdict) bool
	}{
		{"one unit more than the stock is sold", func(p *pod) {
			p.Load(1, map[[2]int64]int64{{900, 1}: 1})
		}, func(v Verdict) bool { return v.Oversold == 1 && v.LostHolds == 0 }},
		{"a refused cart is told granted", func(p *pod) {
			var once sync.Once
			p.after = func(op string, token holdover.Token, res holdover.Result, err error) (holdover.Result, error) {
				if errors.Is(err, holdover.ErrOutOfStock) {
					once.Do(func() {
						err = nil
						res.Hold.ExpiresAt = p.Now().Add(time.Minute)
						res.Hold.Lines = []holdover.Line{one(900, 1, 1)}
					})
				}
				return res, err
			}
		}, func(v Verdict) bool { return v.LostHolds == 1 }},
		{"a hold is dropped behind the buyer's back", func(p *pod) {
			var n atomic.Int64
			p.after = func(op string, token holdover.Token, res holdover.Result, err error) (holdover.Result, error) {
				if op == "reserve" && err == nil && n.Add(1) == 10 {
					_, _ = p.Model.Release(context.Background(), res.Hold.Shop, token)
				}
				return res, err
			}
		}, func(v Verdict) bool { return v.LostHolds == 1 }},
		{"a cart is refused while its stock is there", func(p *pod) {
			var n atomic.Int64
			p.before = func(_ string, r holdover.Request) (holdover.Result, error, bool) {
				if n.Add(1) != 5 {
					return holdover.Result{}, nil, false
				}
				return holdover.Result{}, &holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: r.Shop}, true
			}
		}, func(v Verdict) bool { return v.FalseSoldOut == 1 && v.LostHolds == 0 && v.Oversold == 0 }},
		{"the last unit is never sold", func(p *pod) {
			p.Load(1, map[[2]int64]int64{{900, 1}: -1})
		}, func(v Verdict) bool { return v.FalseSoldOut > 0 }},
		{"a claim is told and not made", func(p *pod) {
			var n atomic.Int64
			p.after = func(op string, token holdover.Token, res holdover.Result, err error) (holdover.Result, error) {
				if n.Add(1); op == "reserve" && err == nil && n.Load() > 20 {
					n.Store(-1 << 30)
					_, _ = p.Model.Release(context.Background(), res.Hold.Shop, token)
				}
				if op == "claim" && err != nil {
					return holdover.Result{}, nil
				}
				return res, err
			}
		}, func(v Verdict) bool { return v.LostHolds == 1 && v.WrongEnds == 1 }},
		{"a release is told and a claim made", func(p *pod) {
			var once sync.Once
			p.after = func(op string, token holdover.Token, res holdover.Result, err error) (holdover.Result, error) {
				if op == "reserve" && err == nil && res.Hold.Shop == 1 {
					once.Do(func() { _, _ = p.Model.Claim(context.Background(), 1, token) })
				}
				if op == "release" && err != nil {
					return holdover.Result{}, nil
				}
				return res, err
			}
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small()
				cfg.Shops, cfg.Abandon, cfg.TTL = []int64{1}, 0, time.Minute
				if test.sees == nil { // the fault shows in releases only
					cfg.PaymentFail = 1
					test.sees = func(v Verdict) bool { return v.WrongEnds == 1 && v.LostHolds == 0 }
				}
				p := newPod(t, cfg)
				test.plant(p)
				_, counts, v := shopping(t, cfg, p, AuditConfig{})
				if v.OK || !test.sees(v) {
					t.Errorf("counts %+v, verdict %+v", counts, v)
				}
			})
		})
	}
}
