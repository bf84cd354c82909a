package dualwrite

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"holdover"
)

// A panic in a store's code is a store that gave no answer: it must not end the
// process that serves the other store, on whatever goroutine it happens.

// contained runs one step and turns its panic into an error of unknown outcome.
func contained[T any](store holdover.Store, pod, op string, token holdover.Token, step func() (T, error)) (got T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &holdover.StoreError{Store: store, Pod: pod, Op: op, Token: token, Unknown: true, Err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	return step()
}

func containedErr(store holdover.Store, pod, op string, token holdover.Token, step func() error) error {
	_, err := contained(store, pod, op, token, func() (struct{}, error) { return struct{}{}, step() })
	return err
}

// containedSteps are the steps that both stores have.
type containedSteps struct {
	store holdover.Store
	pod   string
	steps interface {
		Fenced
		Steps
	}
}

func (c containedSteps) Fence(ctx context.Context) (holdover.Fence, error) {
	return contained(c.store, c.pod, "read the fence", holdover.Token{}, func() (holdover.Fence, error) { return c.steps.Fence(ctx) })
}

func (c containedSteps) Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error) {
	return contained(c.store, c.pod, "look up", token, func() (holdover.Hold, error) { return c.steps.Lookup(ctx, token) })
}

func (c containedSteps) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	return contained(c.store, c.pod, "apply "+h.State.String(), h.Token, func() (holdover.Hold, error) { return c.steps.Apply(ctx, h) })
}

func (c containedSteps) GiveBack(ctx context.Context, token holdover.Token, a holdover.Attempt) (bool, error) {
	return contained(c.store, c.pod, "give back", token, func() (bool, error) { return c.steps.GiveBack(ctx, token, a) })
}

func (c containedSteps) Due(ctx context.Context, grace time.Duration, shop int64, items []int64, limit int) ([]holdover.Hold, error) {
	return contained(c.store, c.pod, "list due holds", holdover.Token{}, func() ([]holdover.Hold, error) { return c.steps.Due(ctx, grace, shop, items, limit) })
}

// containedRedis is the pod's Redis without its panics.
type containedRedis struct {
	containedSteps
	redis Redis
}

func containRedis(pod string, r Redis) *containedRedis {
	return &containedRedis{containedSteps{holdover.StoreRedis, pod, r}, r}
}

func (c *containedRedis) CompareAndSetFence(ctx context.Context, from holdover.Epoch, f holdover.Fence) error {
	return containedErr(c.store, c.pod, "set the fence", holdover.Token{}, func() error { return c.redis.CompareAndSetFence(ctx, from, f) })
}

func (c *containedRedis) Look(ctx context.Context, e holdover.Epoch, r holdover.Request, limit int) ([]holdover.Hold, error) {
	return contained(c.store, c.pod, "look before a refusal", r.Token, func() ([]holdover.Hold, error) { return c.redis.Look(ctx, e, r, limit) })
}

func (c *containedRedis) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request) (holdover.Grant, error) {
	return contained(c.store, c.pod, "vote", r.Token, func() (holdover.Grant, error) { return c.redis.Vote(ctx, t, r) })
}

func (c *containedRedis) Copy(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Copied, error) {
	return contained(c.store, c.pod, "copy", h.Token, func() (holdover.Copied, error) { return c.redis.Copy(ctx, e, h) })
}

func (c *containedRedis) Mark(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line) (holdover.Hold, error) {
	return contained(c.store, c.pod, "mark", token, func() (holdover.Hold, error) { return c.redis.Mark(ctx, e, shop, token, part) })
}

func (c *containedRedis) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration) (holdover.Hold, error) {
	return contained(c.store, c.pod, "extend", token, func() (holdover.Hold, error) { return c.redis.Extend(ctx, e, shop, token, ttl, life) })
}

func (c *containedRedis) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State) (holdover.Hold, error) {
	return contained(c.store, c.pod, "end", token, func() (holdover.Hold, error) { return c.redis.End(ctx, e, shop, token, how) })
}

func (c *containedRedis) Marked(ctx context.Context, age time.Duration, limit int) ([]holdover.Hold, error) {
	return contained(c.store, c.pod, "list marked holds", holdover.Token{}, func() ([]holdover.Hold, error) { return c.redis.Marked(ctx, age, limit) })
}

func (c *containedRedis) Counters(ctx context.Context, shop int64, items []int64) ([]int64, error) {
	return contained(c.store, c.pod, "read counters", holdover.Token{}, func() ([]int64, error) { return c.redis.Counters(ctx, shop, items) })
}

func (c *containedRedis) Standing(ctx context.Context, shop int64, items []int64) (holdover.Standing, error) {
	return contained(c.store, c.pod, "read hold by hold", holdover.Token{}, func() (holdover.Standing, error) { return c.redis.Standing(ctx, shop, items) })
}

func (c *containedRedis) Trip(ctx context.Context, f holdover.Fence, facts []holdover.Hold) error {
	return containedErr(c.store, c.pod, "trip", holdover.Token{}, func() error { return c.redis.Trip(ctx, f, facts) })
}

func (c *containedRedis) Instances(ctx context.Context, maxAge time.Duration) ([]holdover.Instance, error) {
	return contained(c.store, c.pod, "list instances", holdover.Token{}, func() ([]holdover.Instance, error) { return c.redis.Instances(ctx, maxAge) })
}

func (c *containedRedis) History(ctx context.Context, limit int) ([]holdover.Fence, error) {
	return contained(c.store, c.pod, "read the fence's history", holdover.Token{}, func() ([]holdover.Fence, error) { return c.redis.History(ctx, limit) })
}

func (c *containedRedis) DropFence(ctx context.Context, upTo holdover.Epoch) error {
	return containedErr(c.store, c.pod, "drop the fence", holdover.Token{}, func() error { return c.redis.DropFence(ctx, upTo) })
}

func (c *containedRedis) Identity(ctx context.Context) (string, error) {
	return contained(c.store, c.pod, "read the identity", holdover.Token{}, func() (string, error) { return c.redis.Identity(ctx) })
}

// containedMySQL is the pod's MySQL without its panics.
type containedMySQL struct {
	containedSteps
	mysql MySQL
}

func containMySQL(pod string, m MySQL) *containedMySQL {
	return &containedMySQL{containedSteps{holdover.StoreMySQL, pod, m}, m}
}

func (c *containedMySQL) RaiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error) {
	return contained(c.store, c.pod, "raise the fence", holdover.Token{}, func() (holdover.Fence, error) { return c.mysql.RaiseFence(ctx, f) })
}

func (c *containedMySQL) Vote(ctx context.Context, t holdover.Ticket, r holdover.Request, journal bool) (holdover.Grant, error) {
	return contained(c.store, c.pod, "vote", r.Token, func() (holdover.Grant, error) { return c.mysql.Vote(ctx, t, r, journal) })
}

func (c *containedMySQL) JournalGrant(ctx context.Context, e holdover.Epoch, token holdover.Token) error {
	return containedErr(c.store, c.pod, "journal a grant", token, func() error { return c.mysql.JournalGrant(ctx, e, token) })
}

func (c *containedMySQL) Claim(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line, journal bool) (holdover.Hold, error) {
	return contained(c.store, c.pod, "claim", token, func() (holdover.Hold, error) { return c.mysql.Claim(ctx, e, shop, token, part, journal) })
}

func (c *containedMySQL) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration, journal bool) (holdover.Hold, error) {
	return contained(c.store, c.pod, "extend", token, func() (holdover.Hold, error) {
		return c.mysql.Extend(ctx, e, shop, token, ttl, life, journal)
	})
}

func (c *containedMySQL) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State, journal bool) (holdover.Hold, error) {
	return contained(c.store, c.pod, "end", token, func() (holdover.Hold, error) { return c.mysql.End(ctx, e, shop, token, how, journal) })
}

func (c *containedMySQL) Owe(ctx context.Context, h holdover.Hold) error {
	return containedErr(c.store, c.pod, "note a debt", h.Token, func() error { return c.mysql.Owe(ctx, h) })
}

func (c *containedMySQL) Levels(ctx context.Context, shop int64, items []int64) (stocks []holdover.Stock, owed map[int64]int64, err error) {
	err = containedErr(c.store, c.pod, "probe", holdover.Token{}, func() (err error) {
		stocks, owed, err = c.mysql.Levels(ctx, shop, items)
		return err
	})
	return stocks, owed, err
}

func (c *containedMySQL) Standing(ctx context.Context, shop int64, items []int64) (holdover.Standing, error) {
	return contained(c.store, c.pod, "read hold by hold", holdover.Token{}, func() (holdover.Standing, error) { return c.mysql.Standing(ctx, shop, items) })
}

func (c *containedMySQL) NoteLate(ctx context.Context, token holdover.Token, facts ...holdover.State) error {
	return containedErr(c.store, c.pod, "note a late fact", token, func() error { return c.mysql.NoteLate(ctx, token, facts...) })
}

func (c *containedMySQL) CameLate(ctx context.Context, token holdover.Token, fact holdover.State) (bool, error) {
	return contained(c.store, c.pod, "read a late fact", token, func() (bool, error) { return c.mysql.CameLate(ctx, token, fact) })
}

func (c *containedMySQL) Owes(ctx context.Context, token holdover.Token) (bool, error) {
	return contained(c.store, c.pod, "read a debt", token, func() (bool, error) { return c.mysql.Owes(ctx, token) })
}

func (c *containedMySQL) Probe(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	return contained(c.store, c.pod, "probe", holdover.Token{}, func() ([]holdover.Stock, error) { return c.mysql.Probe(ctx, shop, items) })
}

func (c *containedMySQL) Journal(ctx context.Context, limit int) ([]holdover.Journaled, error) {
	return contained(c.store, c.pod, "read the journal", holdover.Token{}, func() ([]holdover.Journaled, error) { return c.mysql.Journal(ctx, limit) })
}

func (c *containedMySQL) JournalSize(ctx context.Context) (rows int64, oldest time.Duration, err error) {
	err = containedErr(c.store, c.pod, "count the journal", holdover.Token{}, func() (err error) {
		rows, oldest, err = c.mysql.JournalSize(ctx)
		return err
	})
	return rows, oldest, err
}

func (c *containedMySQL) LastVerified(ctx context.Context) (last, clean holdover.Verified, err error) {
	err = containedErr(c.store, c.pod, "read the last verification", holdover.Token{}, func() (err error) {
		last, clean, err = c.mysql.LastVerified(ctx)
		return err
	})
	return last, clean, err
}

func (c *containedMySQL) RecordVerified(ctx context.Context, v holdover.Verified) error {
	return containedErr(c.store, c.pod, "record a verification", holdover.Token{}, func() error { return c.mysql.RecordVerified(ctx, v) })
}

func (c *containedMySQL) LastDrill(ctx context.Context) (last, passed holdover.Drill, err error) {
	err = containedErr(c.store, c.pod, "read the last drill", holdover.Token{}, func() (err error) {
		last, passed, err = c.mysql.LastDrill(ctx)
		return err
	})
	return last, passed, err
}

func (c *containedMySQL) FenceHistory(ctx context.Context, limit int) ([]holdover.Fence, error) {
	return contained(c.store, c.pod, "read the fence's history", holdover.Token{}, func() ([]holdover.Fence, error) { return c.mysql.FenceHistory(ctx, limit) })
}

func (c *containedMySQL) Followed(ctx context.Context) (holdover.Epoch, error) {
	return contained(c.store, c.pod, "read what redis followed", holdover.Token{}, func() (holdover.Epoch, error) { return c.mysql.Followed(ctx) })
}

func (c *containedMySQL) NoteFollowed(ctx context.Context, epoch holdover.Epoch) error {
	return containedErr(c.store, c.pod, "note what redis followed", holdover.Token{}, func() error { return c.mysql.NoteFollowed(ctx, epoch) })
}

func (c *containedMySQL) ClearJournal(ctx context.Context, token holdover.Token, version uint64) error {
	return containedErr(c.store, c.pod, "clear the journal", token, func() error { return c.mysql.ClearJournal(ctx, token, version) })
}
