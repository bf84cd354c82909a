package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/dualwrite"
)

// call is one step that a facade asks of a store.
type call struct {
	store holdover.Store
	op    string // the method's name
	token holdover.Token
}

func (c call) String() string { return c.store.String() + "." + c.op }

// fault stands between a facade and a store: it decides whether, when and how
// often do runs, and what the facade is told.
type fault func(ctx context.Context, c call, do func(context.Context) error) error

// faults holds what is injected into one facade's calls, and the calls it made.
type faults struct {
	mu    sync.Mutex
	rules []rule
	calls []call
	late  []func() // steps that gave no answer and have not run yet
}

type rule struct {
	match func(call) bool
	fault fault
	once  bool
}

// inject adds a fault to the calls that match; the newest rule wins.
func (f *faults) inject(match func(call) bool, inject fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rule{match: match, fault: inject})
}

// next adds a fault to the next call that matches, and to that one only.
func (f *faults) next(match func(call) bool, inject fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, rule{match: match, fault: inject, once: true})
}

// heal takes all faults out.
func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// made lists the calls so far that match.
func (f *faults) made(match func(call) bool) (got []call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if match(c) {
			got = append(got, c)
		}
	}
	return got
}

// runLate executes what was put off by later.
func (f *faults) runLate() {
	f.mu.Lock()
	late := f.late
	f.late = nil
	f.mu.Unlock()
	for _, do := range late {
		do()
	}
}

func (f *faults) run(ctx context.Context, c call, do func(context.Context) error) error {
	f.mu.Lock()
	f.calls = append(f.calls, c)
	inject := fault(nil)
	for i := len(f.rules) - 1; i >= 0; i-- {
		if f.rules[i].match(c) {
			inject = f.rules[i].fault
			if f.rules[i].once {
				f.rules = slices.Delete(f.rules, i, i+1)
			}
			break
		}
	}
	f.mu.Unlock()
	if inject == nil {
		return do(ctx)
	}
	return inject(ctx, c, do)
}

// through runs one typed step through the faults.
func through[T any](f *faults, ctx context.Context, c call, do func(context.Context) (T, error)) (T, error) {
	answers := make(chan T, 1)
	err := f.run(ctx, c, func(ctx context.Context) error {
		got, err := do(ctx)
		select {
		case answers <- got:
		default:
		}
		return err
	})
	var got T
	select {
	case answer := <-answers:
		if !errors.Is(err, errInjected) {
			got = answer
		}
	default:
	}
	return got, err
}

// Matching.

func ops(store holdover.Store, names ...string) func(call) bool {
	return func(c call) bool {
		return c.store == store && (len(names) == 0 || slices.Contains(names, c.op))
	}
}

func redisOps(names ...string) func(call) bool { return ops(holdover.StoreRedis, names...) }
func mysqlOps(names ...string) func(call) bool { return ops(holdover.StoreMySQL, names...) }

// Faults.

var errInjected = errors.New("injected fault")

func noAnswer(c call) error {
	return &holdover.StoreError{Store: c.store, Pod: pod, Op: c.op, Token: c.token, Unknown: true, Err: errInjected}
}

// dropped: the request never arrived.
func dropped(_ context.Context, c call, _ func(context.Context) error) error { return noAnswer(c) }

// refused: the connection was refused, so certainly nothing happened.
func refused(_ context.Context, c call, _ func(context.Context) error) error {
	return &holdover.StoreError{Store: c.store, Pod: pod, Op: c.op, Token: c.token, Err: errInjected}
}

// replyLost: it was executed, and nobody was told.
func replyLost(ctx context.Context, c call, do func(context.Context) error) error {
	_ = do(ctx)
	return noAnswer(c)
}

// panics: the store's code has a bug.
func panics(context.Context, call, func(context.Context) error) error { panic("injected panic") }

// later: no answer now, executed by runLate.
func (f *faults) later(_ context.Context, c call, do func(context.Context) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = append(f.late, func() { _ = do(context.Background()) })
	return noAnswer(c)
}

// before runs hook, then the step.
func before(hook func()) fault {
	return func(ctx context.Context, _ call, do func(context.Context) error) error {
		hook()
		return do(ctx)
	}
}

// after runs the step, then hook, then answers.
func after(hook func()) fault {
	return func(ctx context.Context, _ call, do func(context.Context) error) error {
		err := do(ctx)
		hook()
		return err
	}
}

// gate is where calls hang until the test lets them go.
type gate struct {
	entered chan call
	opened  chan struct{}
	once    sync.Once
}

func newGate(t *testing.T) *gate {
	g := &gate{entered: make(chan call, 10_000), opened: make(chan struct{})}
	t.Cleanup(g.open) // a facade waits for its calls when it stops
	return g
}

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

// wait waits until a call hangs in the gate.
func (g *gate) wait(t *testing.T) call {
	t.Helper()
	select {
	case c := <-g.entered:
		return c
	case <-time.After(30 * time.Second):
		t.Fatal("no call came to the gate in 30 s")
		return call{}
	}
}

// hang holds the call before its step and heeds no deadline, like a driver that
// waits for a COMMIT; then it runs the step, or fails if the caller has gone.
func (g *gate) hang(ctx context.Context, c call, do func(context.Context) error) error {
	g.entered <- c
	<-g.opened
	if ctx.Err() != nil {
		return noAnswer(c)
	}
	return do(ctx)
}

// hangAfter holds the answer.
func (g *gate) hangAfter(ctx context.Context, c call, do func(context.Context) error) error {
	err := do(ctx)
	g.entered <- c
	<-g.opened
	return err
}

// stuck holds the call until its deadline, like a server that does not answer.
func (g *gate) stuck(ctx context.Context, c call, do func(context.Context) error) error {
	g.entered <- c
	select {
	case <-g.opened:
		return do(ctx)
	case <-ctx.Done():
		return noAnswer(c)
	}
}

// faultyRedis and faultyMySQL send every step through the faults.
type faultyRedis struct {
	dualwrite.Redis
	*faults
}

type faultyMySQL struct {
	dualwrite.MySQL
	*faults
}

// wrap puts faults between a facade and its stores.
func wrap(f *faults) func(*dualwrite.Config) {
	return func(c *dualwrite.Config) {
		c.Redis, c.MySQL = &faultyRedis{c.Redis, f}, &faultyMySQL{c.MySQL, f}
	}
}

func (r *faultyRedis) call(op string, token holdover.Token) call {
	return call{holdover.StoreRedis, op, token}
}

func (r *faultyRedis) Fence(ctx context.Context) (holdover.Fence, error) {
	return through(r.faults, ctx, r.call("Fence", holdover.Token{}), r.Redis.Fence)
}

func (r *faultyRedis) Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error) {
	return through(r.faults, ctx, r.call("Lookup", token), func(ctx context.Context) (holdover.Hold, error) { return r.Redis.Lookup(ctx, token) })
}

func (r *faultyRedis) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	return through(r.faults, ctx, r.call("Apply", h.Token), func(ctx context.Context) (holdover.Hold, error) { return r.Redis.Apply(ctx, h) })
}

func (r *faultyRedis) GiveBack(ctx context.Context, token holdover.Token, a holdover.Attempt) (bool, error) {
	return through(r.faults, ctx, r.call("GiveBack", token), func(ctx context.Context) (bool, error) { return r.Redis.GiveBack(ctx, token, a) })
}

func (r *faultyRedis) Due(ctx context.Context, grace time.Duration, shop int64, items []int64, limit int) ([]holdover.Hold, error) {
	return through(r.faults, ctx, r.call("Due", holdover.Token{}), func(ctx context.Context) ([]holdover.Hold, error) {
		return r.Redis.Due(ctx, grace, shop, items, limit)
	})
}

func (r *faultyRedis) CompareAndSetFence(ctx context.Context, from holdover.Epoch, f holdover.Fence) error {
	return r.run(ctx, r.call("CompareAndSetFence", holdover.Token{}), func(ctx context.Context) error { return r.Redis.CompareAndSetFence(ctx, from, f) })
}

func (r *faultyRedis) Vote(ctx context.Context, t holdover.Ticket, q holdover.Request) (holdover.Grant, error) {
	return through(r.faults, ctx, r.call("Vote", q.Token), func(ctx context.Context) (holdover.Grant, error) { return r.Redis.Vote(ctx, t, q) })
}

func (r *faultyRedis) Look(ctx context.Context, e holdover.Epoch, q holdover.Request, limit int) ([]holdover.Hold, error) {
	return through(r.faults, ctx, r.call("Look", q.Token), func(ctx context.Context) ([]holdover.Hold, error) {
		return r.Redis.Look(ctx, e, q, limit)
	})
}

func (r *faultyRedis) Copy(ctx context.Context, e holdover.Epoch, h holdover.Hold) (holdover.Copied, error) {
	return through(r.faults, ctx, r.call("Copy", h.Token), func(ctx context.Context) (holdover.Copied, error) { return r.Redis.Copy(ctx, e, h) })
}

func (r *faultyRedis) Mark(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line) (holdover.Hold, error) {
	return through(r.faults, ctx, r.call("Mark", token), func(ctx context.Context) (holdover.Hold, error) { return r.Redis.Mark(ctx, e, shop, token, part) })
}

func (r *faultyRedis) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration) (holdover.Hold, error) {
	return through(r.faults, ctx, r.call("Extend", token), func(ctx context.Context) (holdover.Hold, error) {
		return r.Redis.Extend(ctx, e, shop, token, ttl, life)
	})
}

func (r *faultyRedis) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State) (holdover.Hold, error) {
	return through(r.faults, ctx, r.call("End", token), func(ctx context.Context) (holdover.Hold, error) { return r.Redis.End(ctx, e, shop, token, how) })
}

func (r *faultyRedis) Marked(ctx context.Context, age time.Duration, limit int) ([]holdover.Hold, error) {
	return through(r.faults, ctx, r.call("Marked", holdover.Token{}), func(ctx context.Context) ([]holdover.Hold, error) { return r.Redis.Marked(ctx, age, limit) })
}

func (r *faultyRedis) Counters(ctx context.Context, shop int64, items []int64) ([]int64, error) {
	return through(r.faults, ctx, r.call("Counters", holdover.Token{}), func(ctx context.Context) ([]int64, error) { return r.Redis.Counters(ctx, shop, items) })
}

func (r *faultyRedis) Trip(ctx context.Context, f holdover.Fence, facts []holdover.Hold) error {
	return r.run(ctx, r.call("Trip", holdover.Token{}), func(ctx context.Context) error { return r.Redis.Trip(ctx, f, facts) })
}

func (r *faultyRedis) Instances(ctx context.Context, maxAge time.Duration) ([]holdover.Instance, error) {
	return through(r.faults, ctx, r.call("Instances", holdover.Token{}), func(ctx context.Context) ([]holdover.Instance, error) { return r.Redis.Instances(ctx, maxAge) })
}

func (r *faultyRedis) History(ctx context.Context, limit int) ([]holdover.Fence, error) {
	return through(r.faults, ctx, r.call("History", holdover.Token{}), func(ctx context.Context) ([]holdover.Fence, error) { return r.Redis.History(ctx, limit) })
}

func (r *faultyRedis) DropFence(ctx context.Context, upTo holdover.Epoch) error {
	return r.run(ctx, r.call("DropFence", holdover.Token{}), func(ctx context.Context) error { return r.Redis.DropFence(ctx, upTo) })
}

func (r *faultyRedis) Identity(ctx context.Context) (string, error) {
	return through(r.faults, ctx, r.call("Identity", holdover.Token{}), r.Redis.Identity)
}

func (m *faultyMySQL) call(op string, token holdover.Token) call {
	return call{holdover.StoreMySQL, op, token}
}

func (m *faultyMySQL) Fence(ctx context.Context) (holdover.Fence, error) {
	return through(m.faults, ctx, m.call("Fence", holdover.Token{}), m.MySQL.Fence)
}

func (m *faultyMySQL) Lookup(ctx context.Context, token holdover.Token) (holdover.Hold, error) {
	return through(m.faults, ctx, m.call("Lookup", token), func(ctx context.Context) (holdover.Hold, error) { return m.MySQL.Lookup(ctx, token) })
}

func (m *faultyMySQL) Apply(ctx context.Context, h holdover.Hold) (holdover.Hold, error) {
	return through(m.faults, ctx, m.call("Apply", h.Token), func(ctx context.Context) (holdover.Hold, error) { return m.MySQL.Apply(ctx, h) })
}

func (m *faultyMySQL) GiveBack(ctx context.Context, token holdover.Token, a holdover.Attempt) (bool, error) {
	return through(m.faults, ctx, m.call("GiveBack", token), func(ctx context.Context) (bool, error) { return m.MySQL.GiveBack(ctx, token, a) })
}

func (m *faultyMySQL) Due(ctx context.Context, grace time.Duration, shop int64, items []int64, limit int) ([]holdover.Hold, error) {
	return through(m.faults, ctx, m.call("Due", holdover.Token{}), func(ctx context.Context) ([]holdover.Hold, error) {
		return m.MySQL.Due(ctx, grace, shop, items, limit)
	})
}

func (m *faultyMySQL) RaiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error) {
	return through(m.faults, ctx, m.call("RaiseFence", holdover.Token{}), func(ctx context.Context) (holdover.Fence, error) { return m.MySQL.RaiseFence(ctx, f) })
}

func (m *faultyMySQL) Vote(ctx context.Context, t holdover.Ticket, q holdover.Request, journal bool) (holdover.Grant, error) {
	return through(m.faults, ctx, m.call("Vote", q.Token), func(ctx context.Context) (holdover.Grant, error) { return m.MySQL.Vote(ctx, t, q, journal) })
}

func (m *faultyMySQL) JournalGrant(ctx context.Context, e holdover.Epoch, token holdover.Token) error {
	return m.run(ctx, m.call("JournalGrant", token), func(ctx context.Context) error { return m.MySQL.JournalGrant(ctx, e, token) })
}

func (m *faultyMySQL) Claim(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, part []holdover.Line, journal bool) (holdover.Hold, error) {
	return through(m.faults, ctx, m.call("Claim", token), func(ctx context.Context) (holdover.Hold, error) {
		return m.MySQL.Claim(ctx, e, shop, token, part, journal)
	})
}

func (m *faultyMySQL) Extend(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, ttl, life time.Duration, journal bool) (holdover.Hold, error) {
	return through(m.faults, ctx, m.call("Extend", token), func(ctx context.Context) (holdover.Hold, error) {
		return m.MySQL.Extend(ctx, e, shop, token, ttl, life, journal)
	})
}

func (m *faultyMySQL) End(ctx context.Context, e holdover.Epoch, shop int64, token holdover.Token, how holdover.State, journal bool) (holdover.Hold, error) {
	return through(m.faults, ctx, m.call("End", token), func(ctx context.Context) (holdover.Hold, error) {
		return m.MySQL.End(ctx, e, shop, token, how, journal)
	})
}

func (m *faultyMySQL) Probe(ctx context.Context, shop int64, items []int64) ([]holdover.Stock, error) {
	return through(m.faults, ctx, m.call("Probe", holdover.Token{}), func(ctx context.Context) ([]holdover.Stock, error) { return m.MySQL.Probe(ctx, shop, items) })
}

func (m *faultyMySQL) Journal(ctx context.Context, limit int) ([]holdover.Journaled, error) {
	return through(m.faults, ctx, m.call("Journal", holdover.Token{}), func(ctx context.Context) ([]holdover.Journaled, error) { return m.MySQL.Journal(ctx, limit) })
}

func (m *faultyMySQL) JournalSize(ctx context.Context) (rows int64, oldest time.Duration, err error) {
	err = m.run(ctx, m.call("JournalSize", holdover.Token{}), func(ctx context.Context) (err error) {
		rows, oldest, err = m.MySQL.JournalSize(ctx)
		return err
	})
	return rows, oldest, err
}

func (m *faultyMySQL) LastVerified(ctx context.Context) (last, clean holdover.Verified, err error) {
	err = m.run(ctx, m.call("LastVerified", holdover.Token{}), func(ctx context.Context) (err error) {
		last, clean, err = m.MySQL.LastVerified(ctx)
		return err
	})
	return last, clean, err
}

func (m *faultyMySQL) RecordVerified(ctx context.Context, v holdover.Verified) error {
	return m.run(ctx, m.call("RecordVerified", holdover.Token{}), func(ctx context.Context) error { return m.MySQL.RecordVerified(ctx, v) })
}

func (m *faultyMySQL) FenceHistory(ctx context.Context, limit int) ([]holdover.Fence, error) {
	return through(m.faults, ctx, m.call("FenceHistory", holdover.Token{}), func(ctx context.Context) ([]holdover.Fence, error) { return m.MySQL.FenceHistory(ctx, limit) })
}

func (m *faultyMySQL) Followed(ctx context.Context) (holdover.Epoch, error) {
	return through(m.faults, ctx, m.call("Followed", holdover.Token{}), m.MySQL.Followed)
}

func (m *faultyMySQL) NoteFollowed(ctx context.Context, epoch holdover.Epoch) error {
	return m.run(ctx, m.call("NoteFollowed", holdover.Token{}), func(ctx context.Context) error { return m.MySQL.NoteFollowed(ctx, epoch) })
}

func (m *faultyMySQL) ClearJournal(ctx context.Context, token holdover.Token, version uint64) error {
	return m.run(ctx, m.call("ClearJournal", token), func(ctx context.Context) error { return m.MySQL.ClearJournal(ctx, token, version) })
}

// async runs f beside the test and hands over its result.
func async[T any](f func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- f() }()
	return done
}

// await takes what async hands over.
func await[T any](t *testing.T, done <-chan T, what string) T {
	t.Helper()
	select {
	case got := <-done:
		return got
	case <-time.After(30 * time.Second):
		t.Fatalf("waited 30 s in vain for %s", what)
		panic("not reached")
	}
}

// outcome is what a caller was told.
type outcome struct {
	res holdover.Result
	err error
}

func (o outcome) String() string {
	return fmt.Sprintf("%s, %+v, error %v", o.res.Hold.State, o.res.Decision, o.err)
}

func reserveOn(f *dualwrite.Facade, r holdover.Request) outcome {
	res, err := f.Reserve(context.Background(), r)
	return outcome{res, err}
}

func claimOn(f *dualwrite.Facade, shop int64, token holdover.Token) outcome {
	res, err := f.Claim(context.Background(), shop, token)
	return outcome{res, err}
}

func releaseOn(f *dualwrite.Facade, shop int64, token holdover.Token) outcome {
	res, err := f.Release(context.Background(), shop, token)
	return outcome{res, err}
}
