package selftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
	"holdover/compare"
)

// readyTime bounds the wait for a step: with mirror work under way none is ready
// at once.
const readyTime = 20 * time.Second

// step takes the pod to a neighbouring stage.
func (b *bench) step(ctx context.Context, to holdover.Stage) error {
	fence, err := b.facade.Agreed()
	if err != nil {
		return err
	}
	if _, err = b.facade.Step(ctx, fence, to, "selftest", "self-test"); err == nil {
		b.flips++
	}
	return err
}

// grantBefore makes holds in redis, of units that MySQL has elsewhere only.
func (b *bench) grantBefore(ctx context.Context) (tokens []holdover.Token, err error) {
	p := b.planter[0]
	if err := p.Prepare(ctx); err != nil {
		return nil, err
	}
	for range b.cfg.Times {
		token := holdover.NewToken()
		if _, err := b.facade.Reserve(ctx, p.Elsewhere(token)); err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	// Redis's times are milliseconds: a hold granted in the very one in which dual
	// writing begins is not known to be older.
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
	return tokens, ctx.Err()
}

// meetOlder repeats the reserves of holds that are older than dual writing:
// Redis has them, and MySQL can't take them over.
func (b *bench) meetOlder(ctx context.Context, tokens []holdover.Token) (failed []error) {
	for _, token := range tokens {
		if err := b.planter[0].Meet(ctx, compare.KindPreShadow, token, nil); err != nil {
			failed = append(failed, fmt.Errorf("a hold from before dual writing: %w", err))
		}
	}
	return failed
}

// straddle moves the stage in the middle of calls: before Redis votes, so that
// the call goes on in the other stage, where the stores differ about a location.
func (b *bench) straddle(ctx context.Context, times int) (failed []error, err error) {
	for range times {
		fence, err := b.facade.Agreed()
		if err != nil {
			return failed, err
		}
		to := holdover.StageJoint
		if fence.Stage == holdover.StageJoint {
			to = holdover.StageShadow
		}
		// Ready first: in the middle of the call nobody waits.
		if err := b.ready(ctx, to); err != nil {
			return failed, err
		}
		var stepErr error
		err = b.planter[0].Meet(ctx, compare.KindStraddledFlip, holdover.NewToken(), func(ctx context.Context) {
			stepErr = b.step(ctx, to)
		})
		if err := errors.Join(err, stepErr); err != nil {
			failed = append(failed, fmt.Errorf("a flip to %s in the middle of a call: %w", to, err))
		}
	}
	return failed, nil
}

// ready waits until a step could be taken.
func (b *bench) ready(ctx context.Context, to holdover.Stage) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		r, err := b.facade.Ready(ctx, to)
		if err == nil && r.OK() {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the pod did not become ready for %s: %v, %w", to, r.Reasons, errors.Join(err, ctx.Err()))
		}
	}
}
