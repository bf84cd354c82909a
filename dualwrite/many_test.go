package dualwrite_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

// More marks and due holds than Redis lists at once.
const many = 1100

// mark marks holds of fill in Redis, the first one first.
func (r *rig) mark(t *testing.T, holds int) (tokens []holdover.Token) {
	t.Helper()
	_, err := r.raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		now := time.Now()
		for i := 1; i <= holds; i++ {
			token, err := holdover.ParseToken(fmt.Sprintf("00000000-0000-0000-0000-%012x", i))
			if err != nil {
				return err
			}
			tokens = append(tokens, token)
			p.HSet(t.Context(), "hold:"+token.String(), "state", "claiming", "shop", r.shop, "lines", "1:1:1", "expires_ms", now.Add(time.Hour).UnixMilli(),
				"granted_ms", now.UnixMilli(), "attempt", 1, "firm", 1)
			p.ZAdd(t.Context(), "claiming", redis.Z{Score: float64(now.Add(-time.Hour).UnixMilli() + int64(i)), Member: token.String()})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// spoil makes marks ones that the ledger can't take: they claim what is not in the hold.
func (r *rig) spoil(t *testing.T, tokens ...holdover.Token) {
	t.Helper()
	if _, err := r.raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, token := range tokens {
			p.HSet(t.Context(), "hold:"+token.String(), "claimed", "1:2:1")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRebuildWithManyMarks: claims are pending, more than one list of Redis has, and
// the ledger can't take one of them. The others are in it when Redis is rebuilt, and
// that one is told, stays marked, and keeps its unit.
func TestRebuildWithManyMarks(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 10, still, atOnce)
	fill(t, r, many)
	tokens := r.mark(t, many)
	bad := tokens[3]
	r.spoil(t, bad)
	if err := r.redis.DropFence(t.Context(), 1<<40); err != nil {
		t.Fatal(err)
	}
	done, err := r.f.Rebuild(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(done.Marked, []holdover.Token{bad}) || done.Holds != 1 || done.Ended != many-1 {
		t.Errorf("told are %v as marked, %d live and %d ended holds", done.Marked, done.Holds, done.Ended)
	}
	if n := r.count(t, "SELECT COUNT(*) FROM reserved_quantities WHERE state='claimed'"); n != many-1 {
		t.Errorf("%d claims are in the ledger, want %d", n, many-1)
	}
	if got := r.redisState(t, bad); got != "claiming" {
		t.Errorf("what the ledger can't take is %s", got)
	}
	marked, err := r.redis.Marked(t.Context(), 0, 10)
	if err != nil || len(marked) != 1 || marked[0].Token != bad {
		t.Errorf("marked are %v, %v", marked, err)
	}
	if got, want := r.counter(t, r.shop, 1), int64(10); got != want {
		t.Errorf("the counter is %d, want %d", got, want)
	}
	// It is mended, and goes the way of the others.
	if err := r.raw.HSet(t.Context(), "hold:"+bad.String(), "claimed", "").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mark is rolled forward", func() bool {
		if err := r.f.SweepOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r.redisState(t, bad) == "claimed"
	})
}

// TestSweepPassesWhatCannotEnd: more marks that the ledger can't take than Redis
// lists at once are older than one that it can.
func TestSweepPassesWhatCannotEnd(t *testing.T) {
	r := newRig(t, holdover.StageMySQL, 10, still)
	fill(t, r, many)
	tokens := r.mark(t, many)
	r.spoil(t, tokens[:many-1]...)
	if err := r.f.SweepOnce(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := r.redisState(t, tokens[many-1]); got != "claimed" {
		t.Errorf("the claim behind %d that can't be applied is %s", many-1, got)
	}
}

// TestSweepPassesDueHoldsThatCannotEnd: in shadow, more due holds whose counter is
// missing than Redis lists at once are older than one that can end.
func TestSweepPassesDueHoldsThatCannotEnd(t *testing.T) {
	r := newRig(t, holdover.StageShadow, 10, still)
	last := holdover.NewToken()
	_, err := r.raw.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range many {
			token, item := holdover.NewToken(), 77 // has no counter
			if i == many-1 {
				token, item = last, 1
			}
			at := time.Now().Add(-time.Hour).UnixMilli() + int64(i)
			p.HSet(t.Context(), "hold:"+token.String(), "state", "held", "shop", r.shop, "lines", fmt.Sprintf("%d:1:1", item), "expires_ms", at, "granted_ms", at, "attempt", 1, "firm", 1)
			p.ZAdd(t.Context(), "holds", redis.Z{Score: float64(at), Member: token.String()})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.f.SweepOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.redisState(t, last); got != "expired" {
		t.Errorf("the hold behind %d that can't end is %s", many-1, got)
	}
}
