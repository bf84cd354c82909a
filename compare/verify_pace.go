package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"holdover"
)

// pace is how fast a verification reads, and how far it is.
type pace struct {
	next        time.Time // not read before
	done, total int       // rows
	rows        bool      // total counts the stock rows too
}

// The first and the longest pause before a store that gave no answer is asked again.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// call gives f a deadline and its error a name. A store that gives no answer is
// asked again for RetryFor: a hiccup must not cost what was read so far.
func (v *verifier) call(ctx context.Context, what string, f func(context.Context) error) error {
	began := time.Now()
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, v.cfg.CallTimeout)
			defer cancel()
			return f(ctx)
		}()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", what, err)
		if !holdover.NoAnswer(err) || ctx.Err() != nil || time.Since(began)+pause > v.cfg.RetryFor {
			return err
		}
		v.out.Retried++
		if wait(ctx, pause/2+rand.N(pause/2+1)) != nil {
			return err
		}
	}
}

// page is call for a page, which waits for its turn and counts as progress.
func (v *verifier) page(ctx context.Context, what string, f func(context.Context) (rows int, err error)) error {
	if err := v.turn(ctx, 1); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	rows := 0
	err := v.call(ctx, what, func(ctx context.Context) (err error) {
		rows, err = f(ctx)
		return err
	})
	v.progress(rows)
	return err
}

// turn waits until the next read may begin; it takes 1/part of a page's time.
func (v *verifier) turn(ctx context.Context, part int) error {
	if v.cfg.PagesPerSecond < 0 {
		return nil
	}
	now := time.Now()
	if v.pace.next.Before(now) {
		v.pace.next = now
	}
	left := v.pace.next.Sub(now)
	v.pace.next = v.pace.next.Add(time.Second / time.Duration(v.cfg.PagesPerSecond*part))
	if left <= 0 {
		return nil
	}
	return wait(ctx, left)
}

// expect sets what the first look comes to: Redis's holds three times (the second
// and third with MySQL's and around the counters), the stock rows four times.
func (v *verifier) expect(holds int) { v.pace.total = max(v.pace.total, 3*holds) }

// expectRows adds the stock rows once their number is known.
func (v *verifier) expectRows(rows int) {
	if !v.pace.rows {
		v.pace.rows = true
		v.pace.total += 4 * rows
	}
}

func (v *verifier) progress(rows int) {
	v.pace.done += rows
	if v.cfg.Progress == nil {
		return
	}
	total := max(v.pace.total, v.pace.done)
	left := time.Duration(0)
	if v.pace.done > 0 {
		left = time.Duration(float64(time.Since(v.out.Started)) * float64(total-v.pace.done) / float64(v.pace.done))
	}
	if v.out.Rounds == 0 && len(v.holds)+len(v.items)+len(v.rows) > 0 { // some will be looked at again
		left += time.Duration(v.cfg.Rounds-1) * v.cfg.Recheck
	}
	v.cfg.Progress(v.pace.done, total, left)
}
