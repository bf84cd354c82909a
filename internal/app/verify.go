package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"holdover"
	"holdover/compare"
)

// ErrNothingToVerify: the stage leaves Redis alone, so there is nothing to compare.
var ErrNothingToVerify = errors.New("in mysql-only Redis is not written, and there is nothing to compare it with: `holdover verify --store mysql` checks MySQL's own sums")

// VerifyOptions say for whom a verification is made.
type VerifyOptions struct {
	By       string // kept with the outcome; the instance when empty
	Progress func(done, total int, left time.Duration)
}

// Verify compares a pod's stores completely, under traffic, without an instance,
// and records the outcome in MySQL.
func Verify(ctx context.Context, c Config, s *Stores) (compare.Verification, error) {
	return VerifyFor(ctx, c, s, VerifyOptions{})
}

// VerifyFor is Verify for somebody. ErrRedisLost, beside what was found, when Redis
// is not one to compare with.
func VerifyFor(ctx context.Context, c Config, s *Stores, o VerifyOptions) (compare.Verification, error) {
	return verifyFor(ctx, c, s, o, 0, false)
}

// verifyFor with fromMySQL does not ask for holds that Redis has forgotten.
func verifyFor(ctx context.Context, c Config, s *Stores, o VerifyOptions, rechecks int, fromMySQL bool) (compare.Verification, error) {
	cfg, fence, err := verifyConfig(ctx, c, s, o)
	cfg.MaxRechecks = rechecks
	if err != nil {
		return compare.Verification{Pod: s.Name}, err
	}
	if o.By == "" {
		o.By = c.Instance
	}
	before, _ := s.Redis.Identity(ctx) // silence shows in the second reading, which counts
	redis, mysql := compare.Except(s.plantedOn(), s.Redis, s.MySQL)
	v, err := compare.Verify(ctx, redis, mysql, cfg)
	if err != nil {
		return v, err
	}
	after, _ := s.Redis.Identity(ctx)
	summary, lost := v.Summary(), s.stillItself(ctx, v, fromMySQL)
	switch {
	case lost != nil:
		v.Clean, summary = false, "not clean: "+lost.Error()
	case before != after, after == "":
		v.Clean, summary = false, "not clean: redis was restarted or replaced meanwhile"
	}
	return v, errors.Join(lost, s.MySQL.RecordVerified(ctx, holdover.Verified{
		Pod: s.Name, Epoch: fence.Epoch, RedisID: after, Clean: v.Clean, Differences: v.Count, Unsettled: v.UnsettledCount, Summary: summary, By: o.By,
	}))
}

// verifyConfig says how the pod is verified in its agreed stage.
func verifyConfig(ctx context.Context, c Config, s *Stores, o VerifyOptions) (compare.VerifyConfig, holdover.Fence, error) {
	fence, _, err := agreedNow(ctx, s)
	if err != nil && !errors.Is(err, holdover.ErrNoFence) { // not begun yet is epoch zero
		return compare.VerifyConfig{}, fence, err
	}
	if fence.Stage == holdover.StageMySQLOnly {
		return compare.VerifyConfig{}, fence, fmt.Errorf("pod %s: %w", s.Name, ErrNothingToVerify)
	}
	cfg := compare.VerifyConfig{Pod: s.Name, Recheck: c.Timing.Recheck, DualSince: s.DualSince(ctx), Progress: o.Progress}
	if fence.Epoch > 0 {
		cfg.Truth = fence.Stage.Truth()
	}
	// Both are for the texts only.
	if _, clean, err := s.MySQL.LastVerified(ctx); err == nil {
		cfg.LastClean = clean
	}
	if strangers, err := s.Redis.Strangers(ctx); err == nil {
		cfg.Strangers = strangers
	}
	return cfg, fence, nil
}

// Verify compares both stores completely, under traffic.
func (p *Pod) Verify(ctx context.Context) (compare.Verification, error) {
	v, err := Verify(ctx, p.cfg, p.Stores)
	if err != nil {
		return v, err
	}
	p.verifiedNow(v)
	return v, nil
}

// verifiedNow keeps a verification as this process's last one.
func (p *Pod) verifiedNow(v compare.Verification) {
	p.Comparator.RecordVerification(v)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verification = &v
}

// LastVerification returns the last one this instance made, or nil.
func (p *Pod) LastVerification() *compare.Verification {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.verification
}

// foreignSeen is when a verification of this process last found counters that
// somebody else had changed; zero: never.
func (p *Pod) foreignSeen() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.verification; v != nil && len(v.ForeignWrites) > 0 {
		p.foreign = v.Started.Add(v.Took)
	}
	return p.foreign
}

// verified is what the facade asks before a step forward.
func (p *Pod) verified(ctx context.Context) (clean bool, why string, err error) {
	v, err := p.Verify(ctx)
	if err != nil {
		return false, "", err
	}
	return v.Clean, v.Summary(), nil
}

// longestVerification bounds one on the clock.
const longestVerification = 30 * time.Minute

// verifyLoop verifies the pod on the clock until ctx ends, in the stages that
// write both stores. Of several instances, and operators, one does it.
func (p *Pod) verifyLoop(ctx context.Context) {
	every := p.cfg.Timing.VerifyEvery
	if every < 0 {
		return
	}
	timer := time.NewTimer(rand.N(every/4 + 1))
	defer timer.Stop()
	var said string
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		word, level := p.verifyOnce(ctx, every)
		if ctx.Err() == nil && word != "" && word != said {
			said = word
			p.log.Log(ctx, level, "verification on the clock: "+word)
		}
		timer.Reset(every/4 + rand.N(every/4+1))
	}
}

// verifyOnce verifies if the last one is old enough, whoever made it. It answers
// with what to log if it is news, and how loudly.
func (p *Pod) verifyOnce(ctx context.Context, every time.Duration) (word string, level slog.Level) {
	fence, err := p.Facade.Agreed()
	if err != nil || !fence.Stage.Dual() {
		return "", slog.LevelInfo
	}
	ctx, cancel := context.WithTimeout(ctx, longestVerification)
	defer cancel()
	_, err = p.MySQL.Alone(ctx, "verify", func(ctx context.Context) error {
		last, _, err := p.MySQL.LastVerified(ctx)
		if err != nil {
			return err
		}
		compared := last.Clean || last.Differences+last.Unsettled > 0 // else it only records that Redis was replaced
		if compared && time.Since(last.At) < every-every/8 {          // by MySQL's clock: a little off does no harm
			return nil
		}
		v, err := p.Verify(ctx)
		if err != nil {
			return err
		}
		word, level = "clean", slog.LevelInfo
		if !v.Clean {
			level = slog.LevelWarn
			word = fmt.Sprintf("%d differences, %d unsettled; `holdover verify --pod %s` lists them", v.Count, v.UnsettledCount, p.Name)
		}
		return nil
	})
	if err != nil {
		return "not made, the next round tries again: " + Hinted(err).Error(), slog.LevelWarn
	}
	return word, level
}

// historyDepth is how many fences DualSince goes back.
const historyDepth = 1000

// DualSince is when dual writing last began, by Redis's clock and from its
// history of fences; zero when the pod does not write dually, or it can't be
// told. It only names differences: nothing is decided by it.
func (s *Stores) DualSince(ctx context.Context) time.Time {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	history, err := s.Redis.History(ctx, historyDepth)
	if err != nil {
		return time.Time{}
	}
	var since time.Time
	for _, past := range history { // newest first
		if !past.Stage.Dual() {
			return since
		}
		since = past.At
	}
	return time.Time{} // the beginning is no longer in the history
}
