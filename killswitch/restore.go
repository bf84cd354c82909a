package killswitch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
)

// Restored is what a restore did.
type Restored struct {
	Pod     string         `json:"pod"`
	From    holdover.Fence `json:"from"`
	To      holdover.Fence `json:"to"`
	Already bool           `json:"already"`
	Owed    string         `json:"owed,omitempty"`
	Message string         `json:"message"`
}

// Restore takes the latch off: the flag is followed again, from the same stage
// and at the next epoch. Both stores must answer and agree on the latched fence
// first (a MySQL that is behind is raised); then Redis is written by
// compare-and-set, then MySQL. Errors: holdover.ErrInvalid, ErrUnavailable,
// ErrUnknownOutcome, ErrNoFence, ErrStale (somebody moved the fence: look, and
// restore again if it is still latched), ErrRefused (a kill stopped half way, or
// Redis came back with older data).
func (s *Switch) Restore(ctx context.Context, by, reason string) (Restored, error) {
	return s.restore(ctx, by, reason, nil)
}

// restore with own takes off this latch and no other.
func (s *Switch) restore(ctx context.Context, by, reason string, own *holdover.Fence) (Restored, error) {
	done := Restored{Pod: s.cfg.Pod}
	if err := CheckWho(by, reason); err != nil {
		return done, err
	}
	r, err := s.redisFence(ctx)
	if err != nil {
		return done, fmt.Errorf("pod %s: restore: %w", s.cfg.Pod, err)
	}
	done.From, done.To = r, r
	if own != nil && r.Epoch < own.Epoch {
		return done, s.older(r, *own)
	}
	if own != nil && !sameFence(r, *own) && !sameFence(r, s.opened(*own, by, reason)) { // the second: an earlier attempt's, whose answer was lost
		return done, &holdover.StaleError{Store: holdover.StoreRedis, Asked: own.Epoch, Fence: r}
	}
	m, err := s.raise(ctx, r)
	switch {
	case err == nil && m.Epoch > r.Epoch && s.followed(ctx, m):
		return done, s.older(r, m)
	case err != nil:
		return done, fmt.Errorf("pod %s: nothing was restored: MySQL must have the fence of epoch %d first, bring it back and restore again: %w", s.cfg.Pod, r.Epoch, err)
	case m.Epoch > r.Epoch && !m.Latched && own == nil && s.behind(ctx, m):
		return done, s.older(r, m)
	case m.Epoch > r.Epoch && m.Latched && own == nil:
		return done, fmt.Errorf("pod %s: a kill stopped half way (MySQL has %s, Redis has %s): %w: trip again to finish it, then restore", s.cfg.Pod, m, r, ErrRefused)
	case m.Epoch > r.Epoch:
		return done, fmt.Errorf("pod %s: restore: %w", s.cfg.Pod, &holdover.StaleError{Store: holdover.StoreMySQL, Asked: r.Epoch, Fence: m})
	case !r.Latched:
		done.Already = true
		done.Message = fmt.Sprintf("pod %s is not latched: it is in %s at epoch %d", s.cfg.Pod, r.Stage, r.Epoch)
		return done, nil
	}

	to := s.opened(r, by, reason)
	if err := s.setRedis(ctx, r.Epoch, to); err != nil {
		return done, fmt.Errorf("pod %s: restore: %w", s.cfg.Pod, err)
	}
	done.To = to
	done.Message = fmt.Sprintf("pod %s: the latch is off, in %s at epoch %d: the flag is followed again", s.cfg.Pod, to.Stage, to.Epoch)
	if _, err := s.raise(ctx, to); err != nil {
		done.Owed = fmt.Sprintf("MySQL of pod %s is owed fence %d: %v. Instances raise it before they use it", s.cfg.Pod, to.Epoch, err)
	}
	s.log.Warn("kill switch restored", "by", by, "reason", reason, "from", r.String(), "to", to.String(), "owed", done.Owed)
	return done, nil
}

// followed reports that Redis was seen at MySQL's fence, or beyond: if it is behind
// now, it has lost that.
func (s *Switch) followed(ctx context.Context, m holdover.Fence) bool {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RestoreTimeout)
	defer cancel()
	epoch, err := ask(s, ctx, s.cfg.MySQL.Followed)
	return err == nil && epoch >= m.Epoch
}

// behind asks Redis again: every change but a kill writes it first, so that one that
// is still behind an open fence has lost that.
func (s *Switch) behind(ctx context.Context, m holdover.Fence) bool {
	r, err := s.redisFence(ctx)
	return err == nil && r.Epoch < m.Epoch
}

// opened is the fence that a restore of this latch writes.
func (s *Switch) opened(latch holdover.Fence, by, reason string) holdover.Fence {
	return holdover.Fence{Pod: s.cfg.Pod, Epoch: latch.Epoch + 1, Stage: latch.Stage, By: by, Reason: reason, At: time.Now().UTC()}
}

func (s *Switch) redisFence(ctx context.Context) (holdover.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	defer cancel()
	return s.cfg.Redis.Fence(ctx)
}

func (s *Switch) raise(ctx context.Context, f holdover.Fence) (holdover.Fence, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RestoreTimeout)
	defer cancel()
	return ask(s, ctx, func(ctx context.Context) (holdover.Fence, error) { return s.cfg.MySQL.RaiseFence(ctx, f) })
}

// setRedis writes the fence; when the answer is lost it reads what is there.
func (s *Switch) setRedis(ctx context.Context, from holdover.Epoch, to holdover.Fence) error {
	rctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
	err := s.cfg.Redis.CompareAndSetFence(rctx, from, to)
	cancel()
	if !errors.Is(err, holdover.ErrUnknownOutcome) || ctx.Err() != nil {
		return err
	}
	if now, rerr := s.redisFence(ctx); rerr == nil && sameFence(now, to) {
		return nil
	}
	return err
}
