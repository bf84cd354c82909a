package legacyredis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

// Fence reads Redis's half of the fence; ErrNoFence when there is none.
func (s *Store) Fence(ctx context.Context) (holdover.Fence, error) {
	const op = "read the fence"
	ctx, cancel := context.WithTimeout(ctx, s.cfg.OpTimeout)
	defer cancel()
	values, err := s.control.HMGet(ctx, s.fence, "pod", "epoch", "stage", "latched", "by", "reason", "at_ms").Result()
	if err != nil {
		return holdover.Fence{}, s.failure(op, holdover.Token{}, false, err)
	}
	if values[1] == nil {
		return holdover.Fence{}, s.refusal(step{op: op}, "no-fence", &reply{})
	}
	r := reply{values: values}
	f, err := r.fence()
	if err == nil && f.Pod != s.cfg.Pod {
		err = s.otherPod(f.Pod)
	}
	if err != nil {
		return holdover.Fence{}, s.failure(op, holdover.Token{}, false, err)
	}
	return f, nil
}

func (s *Store) otherPod(name string) error {
	return fmt.Errorf("its fence belongs to pod %q: every pod needs a Redis, or a database and prefix, of its own", name)
}

// CompareAndSetFence writes f if the store's epoch is still from (zero: no
// fence yet); else a *StaleError with the fence that is there, or ErrNoFence.
func (s *Store) CompareAndSetFence(ctx context.Context, from holdover.Epoch, f holdover.Fence) error {
	if f.Epoch <= from {
		return &holdover.InvalidError{Field: "epoch", Value: epochText(f.Epoch), Problem: "must be larger than the one it replaces, " + epochText(from)}
	}
	_, err := s.writeFence(ctx, step{op: "set the fence", asked: from}, "set", from, f)
	return err
}

// RaiseFence writes f if its epoch is larger than the store's and returns the
// fence that is there afterwards. A Redis without a fence is not raised but
// refused with ErrNoFence: it was never initialized, or it lost its data, and a
// fence written over that would hide it.
func (s *Store) RaiseFence(ctx context.Context, f holdover.Fence) (holdover.Fence, error) {
	return s.writeFence(ctx, step{op: "raise the fence", asked: f.Epoch}, "raise", 0, f)
}

func (s *Store) writeFence(ctx context.Context, st step, mode string, from holdover.Epoch, f holdover.Fence) (holdover.Fence, error) {
	fields, err := s.fenceFields(f)
	if err != nil {
		return holdover.Fence{}, err
	}
	st.script, st.writes, st.control = s.scripts.fence, true, true
	answer, err := s.run(ctx, st, append([]any{mode, epochText(from)}, fields...)...)
	if err != nil {
		return holdover.Fence{}, err
	}
	list := answer.list()
	after, err := list.fence()
	return after, s.readable(st.op, holdover.Token{}, &answer, err)
}

// fenceFields are the arguments that write_fence of the scripts takes.
func (s *Store) fenceFields(f holdover.Fence) ([]any, error) {
	if f.Pod == "" {
		f.Pod = s.cfg.Pod
	}
	if f.Pod != s.cfg.Pod {
		return nil, &holdover.InvalidError{Field: "pod", Value: f.Pod, Problem: "is not this store's pod, " + s.cfg.Pod}
	}
	if f.Epoch == 0 || f.Epoch > maxNumber {
		return nil, &holdover.InvalidError{Field: "epoch", Value: epochText(f.Epoch), Problem: "must be from 1 to 2^53"}
	}
	if _, err := holdover.ParseStage(f.Stage.String()); err != nil {
		return nil, err
	}
	line, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("fence of pod %s: %w", f.Pod, err)
	}
	return []any{f.Pod, epochText(f.Epoch), f.Stage.String(), flag(f.Latched), f.By, f.Reason, line, s.cfg.HistoryLimit, s.channel}, nil
}

// Trip is the kill's half in Redis (rule 4): one script applies the facts and
// sets the fence, if f.Epoch is larger than the store's; else nothing is
// written and the error is a *StaleError. A fact that can't be counted, because
// its item's counter is missing or broken, is recorded without the counter (no
// vote is granted on such a counter); a fact that can't be carried at all is
// left out. Both are logged with their tokens and don't stop the kill.
func (s *Store) Trip(ctx context.Context, f holdover.Fence, facts []holdover.Hold) error {
	fields, err := s.fenceFields(f)
	if err != nil {
		return err
	}
	args := make([]any, 0, len(fields)+len(facts))
	args = append(args, fields...)
	for _, fact := range facts {
		if err := checkFact(fact); err != nil {
			s.log.Error("the kill leaves out a fact that says nothing", "token", fact.Token, "error", err)
			continue
		}
		args = append(args, packFact(fact))
	}
	st := step{op: "trip", script: s.scripts.trip, asked: f.Epoch, writes: true, control: true, timeout: s.cfg.TripTimeout}
	answer, err := s.run(ctx, st, args...)
	if err != nil {
		return err
	}
	uncounted, reused := answer.list(), answer.list()
	for len(uncounted.values) > 0 {
		s.log.Error("the kill recorded a fact without its counter, which is missing or broken: load the item before selling it", "token", uncounted.text())
	}
	for len(reused.values) > 0 {
		s.log.Error("the kill left out a fact whose token stands for other lines in redis", "token", reused.text())
	}
	return s.readable(st.op, holdover.Token{}, &answer, errors.Join(uncounted.err, reused.err))
}

// History returns the fences that were set, newest first, at most limit of
// them and at most Config.HistoryLimit.
func (s *Store) History(ctx context.Context, limit int) ([]holdover.Fence, error) {
	const op = "read the fence's history"
	if limit <= 0 {
		return nil, &holdover.InvalidError{Field: "limit", Value: strconv.Itoa(limit), Problem: "must be positive"}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.OpTimeout)
	defer cancel()
	lines, err := s.control.LRange(ctx, s.cfg.Prefix+"fence:history", 0, int64(limit)-1).Result()
	if err != nil {
		return nil, s.failure(op, holdover.Token{}, false, err)
	}
	fences := make([]holdover.Fence, len(lines))
	for i, line := range lines {
		at, text, _ := strings.Cut(line, " ")
		ms, err := strconv.ParseInt(at, 10, 64)
		if err == nil {
			err = json.Unmarshal([]byte(text), &fences[i])
		}
		if err != nil {
			return nil, s.failure(op, holdover.Token{}, false, fmt.Errorf("line %d can't be read: %w", i+1, err))
		}
		fences[i].At = fromMillis(ms)
	}
	return fences, nil
}

const (
	followQuiet  = 2 * time.Second // without a message the connection is asked whether it lives
	followSlow   = time.Second     // longest wait between two tries to subscribe
	followFirst  = 20 * time.Millisecond
	followSignal = "subscribe"
)

// FollowFence calls onChange after every write of the fence, and after every
// (re)subscription, because what was published before is lost. It blocks, and
// subscribes anew after a failure, until ctx ends; then it returns ctx's error.
// onChange runs on FollowFence's goroutine: it must be short. Messages are a
// hint to read the fence, never the fence itself.
func (s *Store) FollowFence(ctx context.Context, onChange func()) error {
	wait := followFirst
	for {
		subscribed, err := s.follow(ctx, onChange)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, redis.ErrClosed) {
			return s.failure("follow the fence", holdover.Token{}, false, err)
		}
		if subscribed {
			wait = followFirst
		}
		s.log.Debug("the fence's channel is lost; subscribing again", "error", err, "wait", wait)
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
		wait = min(2*wait, followSlow)
	}
}

// follow is one subscription, until it fails.
func (s *Store) follow(ctx context.Context, onChange func()) (subscribed bool, err error) {
	sub := s.control.Subscribe(ctx)
	// A blocked read does not see the end of ctx; closing the connection ends it.
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer func() {
		stop()
		_ = sub.Close() // what it was about is in err already
	}()
	if err := sub.Subscribe(ctx, s.channel); err != nil {
		return false, err
	}
	asked := false
	for {
		message, err := sub.ReceiveTimeout(ctx, followQuiet)
		var timeout interface{ Timeout() bool }
		switch {
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			if err := sub.Ping(ctx); err != nil {
				return subscribed, err
			}
			continue
		case err != nil:
			return subscribed, err
		}
		asked = false
		switch m := message.(type) {
		case *redis.Subscription:
			if m.Kind == followSignal {
				subscribed = true
				onChange()
			}
		case *redis.Message:
			onChange()
		}
	}
}
