package compare

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdover"
)

// What MySQL's journal has is lag: no difference, neither of the hold nor of the
// counters that move when Redis gets it. One that stays is named.
func TestVerifyJournalIsLag(t *testing.T) {
	for name, since := range map[string]time.Duration{"young": time.Second, "old": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			h := holdover.Hold{Token: holdover.NewToken(), Shop: 1, State: holdover.StateHeld, Firm: true, Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 4}}}
			w.takeMySQL(h)
			w.journal = []holdover.Journaled{{Hold: h, Version: 1, Since: time.Now().Add(-since)}}
			v, err := Verify(t.Context(), redisTable{w}, mysqlTable{w}, VerifyConfig{Pod: "p", Rounds: 2})
			if err != nil || v.Journaled != 1 {
				t.Fatalf("%s: %+v, %v", name, v, err)
			}
			switch {
			case name == "young" && v.Count != 0:
				t.Errorf("young: %s %v", v.Summary(), v.Differences)
			case name == "old" && (v.Clean || v.Count != 1 || v.Differences[0].Kind != DiffJournal || v.Differences[0].Units != 4):
				t.Errorf("old: %s %v", v.Summary(), v.Differences)
			}
		})
	}
}

// An adjustment that Redis is owed puts its item's counter off, and is no foreign
// write; once it is settled the item is right.
func TestVerifyOwedAdjustment(t *testing.T) {
	w := newWorld()
	w.changeStock(rowKey{1, 1, 1}, func(s *holdover.Stock) { s.Available += 7 })
	w.owed = []holdover.Adjusted{{Adjustment: holdover.Adjustment{Shop: 1, Item: 1, Group: 1, Delta: 7}, Changed: 7, Owed: true}}
	if v := verify(t, w, VerifyConfig{}); v.Count != 0 || v.UnsettledCount != 1 || len(v.ForeignWrites) != 0 {
		t.Errorf("owed: %s %v", v.Summary(), v.Differences)
	}
	w.owed = nil
	if v := verify(t, w, VerifyConfig{}); v.Count != 1 || v.Differences[0].Units != -7 {
		t.Errorf("not owed: %s %v", v.Summary(), v.Differences)
	}
}

// A store that gives no answer for a while costs no verification.
func TestVerifyOutlivesAHiccup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for range 20 {
			w.reserve(1, 1)
		}
		reads := 0
		w.read = func(string) {
			if reads++; reads == 8 {
				w.fail = &holdover.StoreError{Store: holdover.StoreRedis, Pod: "p", Op: "list holds", Err: errors.New("connection reset")}
			}
		}
		go func() {
			time.Sleep(10 * time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.fail = nil
		}()
		v, err := Verify(t.Context(), redisTable{w}, mysqlTable{w}, VerifyConfig{Pod: "p", PageSize: 3})
		if err != nil || !v.Clean || v.Retried == 0 {
			t.Errorf("%s, %d retries, %v", v.Summary(), v.Retried, err)
		}
	})
}

// Pages come no faster than they may, and progress ends where it said it would.
func TestVerifyPaceAndProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for range 30 {
			w.reserve(1, 1)
		}
		var last, total, calls int
		began := time.Now()
		v, err := Verify(t.Context(), redisTable{w}, mysqlTable{w}, VerifyConfig{Pod: "p", PageSize: 3, PagesPerSecond: 10, Progress: func(done, of int, left time.Duration) {
			if done < last || of < done || left < 0 {
				t.Errorf("%d of %d, %s left", done, of, left)
			}
			last, total = done, of
			calls++
		}})
		if err != nil || !v.Clean {
			t.Fatalf("%s, %v", v.Summary(), err)
		}
		if last != total || last < 3*30 {
			t.Errorf("progress ended at %d of %d", last, total)
		}
		if least := time.Duration(calls-2) * 100 * time.Millisecond; time.Since(began) < least {
			t.Errorf("%d pages in %s, want %s at least", calls, time.Since(began), least)
		}
	})
}

// A counter that somebody else moved is told with what is known about it.
func TestVerifyNamesForeignWriters(t *testing.T) {
	w := newWorld()
	w.foreignWrite(2, -7)
	v := verify(t, w, VerifyConfig{LastClean: holdover.Verified{At: time.Now().Add(-10 * time.Minute)}, Strangers: []string{"old-shop at 10.0.0.9:5000, last command decrby"}})
	if len(v.Strangers) != 1 || !strings.Contains(v.Differences[0].Text, "took units out") || !strings.Contains(v.Differences[0].Text, "since the last clean verification") {
		t.Errorf("%v %v", v.Strangers, v.Differences)
	}
	if v := verify(t, newWorld(), VerifyConfig{Strangers: []string{"somebody"}}); len(v.Strangers) != 0 {
		t.Errorf("strangers where nothing is wrong: %v", v.Strangers)
	}
}

// Where MySQL decides, a hold that Redis would let end too early is a difference.
func TestVerifyEarlyExpiryInRedis(t *testing.T) {
	for truth, want := range map[holdover.Store]uint64{holdover.StoreMySQL: 1, holdover.StoreRedis: 0} {
		w := newWorld()
		token := w.reserve(1, 1)
		h := w.mysql[token]
		h.ExpiresAt = time.Now().Add(time.Hour)
		w.mysql[token] = h
		h.ExpiresAt = h.ExpiresAt.Add(-time.Minute)
		w.redis[token] = h
		if v := verify(t, w, VerifyConfig{Truth: truth}); v.Count != want || want == 1 && v.Differences[0].Kind != DiffExpiry {
			t.Errorf("%s decides: %s %v", truth, v.Summary(), v.Differences)
		}
	}
}

// ended in both, and differently, is no live hold: it is found only while it
// happens, and repaired by the ledger's word.
func TestRepairEndedDifferently(t *testing.T) {
	w := newWorld()
	token := w.reserve(1, 2)
	w.endRedis(token, holdover.StateReleased)
	w.endMySQL(token, holdover.StateClaimed)
	found := Verification{Differences: []Difference{{Kind: DiffEndedDifferently, Token: token.String()}}}
	cfg := RepairConfig{Verify: VerifyConfig{Pod: "p"}, Fence: holdover.Fence{Epoch: 3, Stage: holdover.StageJoint}}
	done, err := Repair(t.Context(), repairTable{redisTable{w}}, mysqlRepairTable{mysqlTable{w}}, found, cfg)
	if err != nil || len(done) != 1 || done[0].Outcome != RepairDone || done[0].Store != holdover.StoreRedis || w.redis[token].State != holdover.StateClaimed {
		t.Errorf("%v, %v", done, err)
	}
	// It can't be recorded, so it is not made; and a state that moved on is left.
	w.end(token, holdover.StateReleased)
	if done, err = Repair(t.Context(), repairTable{redisTable{w}}, mysqlRepairTable{mysqlTable{w}}, found, cfg); err != nil || done[0].Outcome != RepairLeft {
		t.Errorf("moved on: %v, %v", done, err)
	}
	w.endMySQL(token, holdover.StateClaimed)
	cfg.Audit = func(context.Context, Repaired) (func(context.Context, string) error, error) {
		return nil, errors.New("no audit")
	}
	if done, err = Repair(t.Context(), repairTable{redisTable{w}}, mysqlRepairTable{mysqlTable{w}}, found, cfg); err == nil || len(done) != 0 || w.redis[token].State != holdover.StateReleased {
		t.Errorf("without an audit: %v, %v", done, err)
	}
}

type repairTable struct{ redisTable }

func (r repairTable) Apply(_ context.Context, h holdover.Hold) (holdover.Hold, error) {
	r.enter("apply")
	defer r.mu.Unlock()
	r.redis[h.Token] = h
	return h, nil
}

func (r repairTable) Vote(context.Context, holdover.Ticket, holdover.Request) (holdover.Grant, error) {
	return holdover.Grant{}, holdover.ErrTryAgain
}

func (r repairTable) ApplyAt(ctx context.Context, _ holdover.Epoch, h holdover.Hold) (holdover.Hold, error) {
	return r.Apply(ctx, h)
}

func (r repairTable) Fence(context.Context) (holdover.Fence, error) {
	return holdover.Fence{Epoch: 3, Stage: holdover.StageJoint}, nil
}

func (r repairTable) Drop(context.Context, holdover.Epoch, holdover.Hold) (bool, error) {
	return false, nil
}

func (r repairTable) ShiftCounter(context.Context, holdover.Epoch, int64, int64, bool, int64, int64) (bool, error) {
	return false, nil
}

type mysqlRepairTable struct{ mysqlTable }

func (m mysqlRepairTable) Fence(context.Context) (holdover.Fence, error) {
	return holdover.Fence{Epoch: 3, Stage: holdover.StageJoint}, nil
}

func (m mysqlRepairTable) Apply(_ context.Context, h holdover.Hold) (holdover.Hold, error) {
	return h, nil
}
