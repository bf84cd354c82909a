package killswitch_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"holdover"
	"holdover/killswitch"
)

// half is a fence in memory with the stores' semantics; hooks provoke faults
// that a real server gives only with luck.
type half struct {
	mu    sync.Mutex
	store holdover.Store
	fence holdover.Fence
}

func (h *half) get() (holdover.Fence, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fence.Epoch == 0 {
		return h.fence, holdover.ErrNoFence
	}
	return h.fence, nil
}

// set writes f if allowed says so of the epoch that is there.
func (h *half) set(f holdover.Fence, asked holdover.Epoch, allowed func(have holdover.Epoch) bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !allowed(h.fence.Epoch) {
		return &holdover.StaleError{Store: h.store, Asked: asked, Fence: h.fence}
	}
	h.fence = f
	return nil
}

type redisStub struct {
	half
	facts     []holdover.Hold
	instances []holdover.Instance
	err       error                        // every call fails with it
	onTrip    func(call int) (after error) // runs before the call; its error is given although the call was done
	refuse    func(facts []holdover.Hold) error
	trips     int
}

func (r *redisStub) Fence(context.Context) (holdover.Fence, error) {
	if r.err != nil {
		return holdover.Fence{}, r.err
	}
	return r.get()
}

func (r *redisStub) Trip(_ context.Context, f holdover.Fence, facts []holdover.Hold) error {
	r.trips++
	var after error
	if r.onTrip != nil {
		after = r.onTrip(r.trips)
	}
	if r.err != nil {
		return r.err
	}
	if r.refuse != nil {
		if err := r.refuse(facts); err != nil {
			return err
		}
	}
	if err := r.set(f, f.Epoch, func(have holdover.Epoch) bool { return f.Epoch > have }); err != nil {
		return err
	}
	r.facts = append(r.facts, facts...)
	return after
}

func (r *redisStub) CompareAndSetFence(_ context.Context, from holdover.Epoch, f holdover.Fence) error {
	if r.err != nil {
		return r.err
	}
	return r.set(f, from, func(have holdover.Epoch) bool { return have == from })
}

func (r *redisStub) Instances(context.Context, time.Duration) ([]holdover.Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]holdover.Instance(nil), r.instances...), r.err
}

func (r *redisStub) History(_ context.Context, limit int) ([]holdover.Fence, error) {
	return []holdover.Fence{r.fence}, nil
}

type mysqlStub struct {
	half
	journal []holdover.Journaled
	err     error
	hang    func(ctx context.Context) // runs before each call
	onRaise func()                    // runs in RaiseFence, before it writes
	failing func(call int) error      // of each RaiseFence
	raises  int
	calls   int

	followed holdover.Epoch
}

func (m *mysqlStub) enter(ctx context.Context) error {
	if m.hang != nil {
		m.hang(ctx)
		return context.Cause(ctx)
	}
	return m.err
}

func (m *mysqlStub) Followed(ctx context.Context) (holdover.Epoch, error) {
	return m.followed, m.enter(ctx)
}

func (m *mysqlStub) NoteFollowed(ctx context.Context, epoch holdover.Epoch) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	m.followed = max(m.followed, epoch)
	return nil
}

func (m *mysqlStub) Fence(ctx context.Context) (holdover.Fence, error) {
	if err := m.enter(ctx); err != nil {
		return holdover.Fence{}, err
	}
	return m.get()
}

func (m *mysqlStub) TripFence(ctx context.Context, f holdover.Fence) ([]holdover.Journaled, error) {
	m.calls++
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	if err := m.set(f, f.Epoch, func(have holdover.Epoch) bool { return f.Epoch > have }); err != nil {
		return nil, err
	}
	return m.journal, nil
}

func (m *mysqlStub) RaiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error) {
	if err := m.enter(ctx); err != nil {
		return holdover.Fence{}, err
	}
	m.raises++
	if m.onRaise != nil {
		m.onRaise()
	}
	if m.failing != nil {
		if err := m.failing(m.raises); err != nil {
			return holdover.Fence{}, err
		}
	}
	_ = m.set(f, f.Epoch, func(have holdover.Epoch) bool { return f.Epoch > have })
	return m.get()
}

func away(s holdover.Store, unknown bool) error {
	return &holdover.StoreError{Store: s, Pod: "p", Op: "test", Unknown: unknown, Err: errors.New("connection reset")}
}

func fenceAt(stage holdover.Stage, epoch holdover.Epoch) holdover.Fence {
	return holdover.Fence{Pod: "p", Epoch: epoch, Stage: stage, By: "setup", Reason: "test"}
}

func latchedAt(stage holdover.Stage, epoch holdover.Epoch) holdover.Fence {
	f := fenceAt(stage, epoch)
	f.Latched = true
	return f
}

// stubs are both stores of a pod at these fences, and its switch.
func stubs(t *testing.T, r, m holdover.Fence, change ...func(*killswitch.Config)) (*killswitch.Switch, *redisStub, *mysqlStub) {
	t.Helper()
	redis := &redisStub{half: half{store: holdover.StoreRedis, fence: r}}
	mysql := &mysqlStub{half: half{store: holdover.StoreMySQL, fence: m}}
	cfg := killswitch.Config{Pod: "p", Redis: redis, MySQL: mysql, AckEvery: time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	sw, err := killswitch.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sw.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return sw, redis, mysql
}

func heldFact() holdover.Journaled {
	return holdover.Journaled{Version: 1, Hold: holdover.Hold{Token: holdover.NewToken(), Shop: 1, State: holdover.StateHeld,
		Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 2}}}}
}
