package workload

import (
	"testing"
	"time"

	"holdover"
)

// history is a book written by hand. Times are milliseconds.
type history struct {
	a    *Account
	next byte
}

func newHistory() *history { return &history{a: NewAccount(AccountConfig{})} }

func ms(n int64) int64 { return n * int64(time.Millisecond) }

// cart adds a token of shop 1 whose only reserve ran from start to end.
func (h *history) cart(start, end int64, ttl int64, lines ...holdover.Line) *record {
	h.next++
	r := holdover.Request{Shop: 1, Token: holdover.Token{h.next}, Lines: lines}
	rec := &record{token: r.Token, shop: 1, lines: h.a.compact(r), first: ms(start), last: ms(end), ttl: ms(ttl)}
	h.a.add(rec)
	return rec
}

func (h *history) granted(start, end, ttl int64, lines ...holdover.Line) *record {
	rec := h.cart(start, end, ttl, lines...)
	rec.promise, rec.granted = promiseGranted, ms(end)
	return rec
}

func (h *history) refused(start, end int64, store holdover.Store, lines ...holdover.Line) *record {
	rec := h.cart(start, end, 1000, lines...)
	rec.promise = promiseRefused
	h.a.counts.Refused++
	h.a.refusals = append(h.a.refusals, refusal{rec: rec, start: ms(start), end: ms(end), store: store, stage: holdover.StageMySQL})
	return rec
}

func (rec *record) told(how ending, start, end int64) {
	rec.ending, rec.ended = how, ms(end)
	if how == endReleased {
		rec.releaseAsked = ms(start)
	} else {
		rec.claimAsked = ms(start)
	}
}

func one(item, group, quantity int64) holdover.Line {
	return holdover.Line{Item: item, Group: group, Quantity: quantity}
}

func TestFalseSoldOut(t *testing.T) {
	mysql, redis := holdover.StoreMySQL, holdover.StoreRedis
	stock := []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 2}, {Shop: 1, Item: 5, Group: 2, Available: 2}, {Shop: 1, Item: 6, Group: 1, Available: 1000}}
	// Each history has one judged refusal, in 100..110 unless it says otherwise,
	// with a grace of 50 for reaping and a lag of 20 in joint.
	tests := []struct {
		name          string
		write         func(h *history)
		wrong, mutual int64
	}{
		{"nobody had anything", func(h *history) {
			h.granted(200, 201, 1000, one(5, 1, 9)).told(endClaimed, 202, 203)
			h.refused(100, 110, mysql, one(5, 1, 2))
		}, 1, 0},
		{"never short at all", func(h *history) { h.refused(100, 110, mysql, one(6, 1, 1)) }, 1, 0},
		{"more than there is", func(h *history) { h.refused(100, 110, mysql, one(5, 1, 3)) }, 0, 0},
		{"all claimed", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endClaimed, 3, 4)
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 0, 0},
		{"one claimed, one free", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 1)).told(endClaimed, 3, 4)
			h.refused(100, 110, mysql, one(5, 1, 1))
			h.granted(200, 201, 1000, one(5, 1, 1)).told(endClaimed, 202, 203)
		}, 1, 0},
		{"released just before the question", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endReleased, 80, 99)
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 1, 0},
		{"the release was told at the moment of the question", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endReleased, 80, 100)
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 0, 0},
		{"asked for at the moment of the answer", func(h *history) {
			h.granted(110, 120, 1000, one(5, 1, 2)).told(endClaimed, 121, 122)
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 0, 0},
		{"asked for after the answer", func(h *history) {
			h.granted(111, 120, 1000, one(5, 1, 2)).told(endClaimed, 121, 122)
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 1, 0},
		{"expired, perhaps not reaped", func(h *history) {
			h.granted(1, 2, 50, one(5, 1, 2)) // until 52 + 50
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 0, 0},
		{"expired, reaped for sure", func(h *history) {
			h.granted(1, 2, 47, one(5, 1, 2)) // until 49 + 50
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 1, 0},
		{"perhaps claimed", func(h *history) {
			h.granted(1, 2, 10, one(5, 1, 2)).claimAsked = ms(5)
			h.refused(1000, 1010, mysql, one(5, 1, 1))
		}, 0, 0},
		{"an unanswered reserve", func(h *history) {
			h.cart(1, 2, 80, one(5, 1, 2)).loose = true
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 0, 0},
		{"a reserve that is still out", func(h *history) {
			h.cart(1, 0, 1, one(5, 1, 2)).running = 1
			h.refused(1000, 1010, mysql, one(5, 1, 1))
		}, 0, 0},
		{"two refuse each other", func(h *history) {
			h.refused(100, 110, mysql, one(5, 1, 2))
			h.refused(109, 120, mysql, one(5, 1, 2))
		}, 0, 2},
		{"another unit for another", func(h *history) {
			h.refused(100, 110, mysql, one(5, 1, 1))
			h.refused(105, 120, mysql, one(5, 1, 1))
			h.granted(200, 210, 9, one(5, 1, 5))
		}, 2, 0},
		{"redis counts the item", func(h *history) {
			h.granted(1, 2, 1000, one(5, 2, 2)).told(endClaimed, 3, 4)
			h.granted(3, 4, 1000, one(5, 1, 1)).told(endClaimed, 5, 6)
			h.refused(100, 110, redis, one(5, 1, 2))
		}, 0, 0},
		{"redis has another location's units", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endClaimed, 3, 4)
			h.refused(100, 110, redis, one(5, 1, 2))
		}, 1, 0},
		{"mysql has not", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endClaimed, 3, 4)
			h.refused(100, 110, mysql, one(5, 1, 2))
		}, 0, 0},
		{"a claim went over to this location", func(h *history) {
			h.granted(1, 2, 1000, one(5, 2, 3)).told(endClaimed, 3, 4)
			h.refused(100, 110, mysql, one(5, 1, 2))
		}, 0, 0},
		{"only one unit went over", func(h *history) {
			h.granted(1, 2, 1000, one(5, 2, 3)).told(endClaimed, 3, 4)
			h.refused(100, 110, mysql, one(5, 1, 1))
		}, 1, 0},
		{"a cart with one short line", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endClaimed, 3, 4)
			h.refused(100, 110, mysql, one(5, 1, 1), one(6, 1, 1))
		}, 0, 0},
		{"a cart with every line there", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 1)).told(endClaimed, 3, 4)
			h.refused(100, 110, mysql, one(5, 1, 1), one(5, 2, 2), one(6, 1, 1))
			h.granted(200, 210, 9, one(5, 1, 5))
		}, 1, 0},
		{"two lines of one item in redis", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 1)).told(endClaimed, 3, 4)
			h.refused(100, 110, redis, one(5, 1, 2), one(5, 2, 2))
		}, 0, 0},
		{"joint, within the lag", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endReleased, 80, 85)
			h.refused(100, 110, mysql, one(5, 1, 1))
			h.a.refusals[0].stage = holdover.StageJoint
		}, 0, 0},
		{"joint, beyond the lag", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endReleased, 70, 75)
			h.refused(100, 110, mysql, one(5, 1, 1))
			h.a.refusals[0].stage = holdover.StageJoint
		}, 1, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newHistory()
			test.write(h)
			c, err := AuditConfig{Stock: stock, Stage: holdover.StageMySQL, ReapGrace: 50 * time.Millisecond, JointLag: 20 * time.Millisecond}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			v := judgeBook(h.a, c)
			if v.FalseSoldOut != test.wrong || v.MutualRefusals != test.mutual {
				t.Errorf("%d false and %d mutual, want %d and %d: %q", v.FalseSoldOut, v.MutualRefusals, test.wrong, test.mutual, v.Details)
			}
		})
	}
}

func TestOversoldPromises(t *testing.T) {
	stock := []holdover.Stock{{Shop: 1, Item: 5, Group: 1, Available: 1}, {Shop: 1, Item: 5, Group: 2, Available: 1}}
	tests := []struct {
		name  string
		write func(h *history)
		want  int64
	}{
		{"exactly all", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endClaimed, 3, 4)
		}, 0},
		{"one too many, claimed", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endClaimed, 3, 4)
			h.granted(5, 6, 1000, one(5, 2, 1)).told(endClaimed, 7, 8)
		}, 1},
		{"one too many, held at the same time", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endReleased, 10, 11)
			h.granted(5, 6, 1000, one(5, 2, 1)).told(endReleased, 10, 11)
		}, 1},
		{"one after the other", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endReleased, 10, 11)
			h.granted(5, 12, 1000, one(5, 2, 2)).told(endClaimed, 13, 14)
		}, 0},
		{"granted at the moment a release was asked for", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2)).told(endReleased, 10, 11)
			h.granted(5, 10, 1000, one(5, 2, 2)).told(endClaimed, 13, 14)
		}, 0},
		{"before an expiry", func(h *history) {
			h.granted(1, 2, 100, one(5, 1, 2))
			h.granted(50, 60, 100, one(5, 1, 1))
		}, 1},
		{"after an expiry", func(h *history) {
			h.granted(1, 2, 100, one(5, 1, 2))
			h.granted(50, 101, 100, one(5, 1, 1))
		}, 0},
		{"claimed after the expiry", func(h *history) {
			h.granted(1, 2, 100, one(5, 1, 2)).told(endClaimed, 150, 160)
			h.granted(150, 170, 100, one(5, 1, 1)).told(endClaimed, 171, 172)
		}, 1},
		{"claimed after the expiry, with another between", func(h *history) {
			h.granted(1, 2, 100, one(5, 1, 2)).told(endClaimed, 150, 160)
			h.granted(110, 120, 100, one(5, 1, 1)).told(endReleased, 130, 131)
		}, 0},
		{"refused and unanswered don't count", func(h *history) {
			h.granted(1, 2, 1000, one(5, 1, 2))
			h.cart(1, 2, 1000, one(5, 1, 2)).loose = true
			h.refused(100, 110, holdover.StoreRedis, one(5, 1, 2))
		}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newHistory()
			test.write(h)
			c, err := AuditConfig{Stock: stock, Stage: holdover.StageMySQL}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			if v := judgeBook(h.a, c); v.Oversold != test.want {
				t.Errorf("%d units oversold, want %d: %q", v.Oversold, test.want, v.Details)
			}
		})
	}
}
