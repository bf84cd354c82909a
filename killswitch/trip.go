package killswitch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdover"
)

// Tripped is what a trip did.
type Tripped struct {
	Pod        string         `json:"pod"`
	From       holdover.Fence `json:"from"` // what was agreed before
	To         holdover.Fence `json:"to"`   // what is agreed now
	Already    bool           `json:"already"`
	Carried    int            `json:"carried"`     // journal facts written into Redis together with the fence
	NotCarried int            `json:"not_carried"` // journal facts that Redis refused; they stay in the journal
	Owed       string         `json:"owed,omitempty"`
	Message    string         `json:"message"`
	Steps      []Step         `json:"steps"`
	Took       time.Duration  `json:"took_ns"`
}

// step runs one call under a deadline of its own and notes how long it took.
func (t *Tripped) step(name string, call func() error) error {
	began := time.Now()
	err := call()
	took := Step{Name: name, Took: time.Since(began)}
	if err != nil {
		took.Err = err.Error()
	}
	t.Steps = append(t.Steps, took)
	return err
}

// Trip flips the pod to Redis and latches it there. by and reason are kept
// with the fence. Errors: holdover.ErrInvalid, ErrRefused (mysql-only, or a Redis
// with older data),
// holdover.ErrUnavailable or ErrUnknownOutcome (Redis does not answer),
// holdover.ErrNoFence (Redis has no data to flip to), holdover.ErrStale (somebody
// else kept moving the fence). On an error Tripped says how far it came.
func (s *Switch) Trip(ctx context.Context, by, reason string) (Tripped, error) {
	if isDrill(reason) { // in a person's words; the latch of a drill is told by its prefix
		reason = killPrefix + strings.TrimPrefix(reason, DrillPrefix)
	}
	return s.trip(ctx, by, reason)
}

// killPrefix stands for DrillPrefix in a kill's reason, and is no longer.
const killPrefix = "kill: "

// trip is Trip, of a drill too.
func (s *Switch) trip(ctx context.Context, by, reason string) (Tripped, error) {
	began := time.Now()
	t := Tripped{Pod: s.cfg.Pod}
	if err := CheckWho(by, reason); err != nil {
		return t, err
	}
	// MySQL's budget runs from here and over all attempts: a slow MySQL can't
	// delay the flip by more than it.
	mctx, cancel := context.WithTimeout(ctx, s.cfg.MySQLTimeout)
	defer cancel()
	var err error
	for attempt := 1; attempt <= s.cfg.Attempts; attempt++ {
		err = s.tripOnce(ctx, mctx, &t, by, reason)
		if !errors.Is(err, holdover.ErrStale) {
			break
		}
	}
	t.Took = time.Since(began)
	switch {
	case errors.Is(err, holdover.ErrStale):
		return t, fmt.Errorf("pod %s: somebody moved the fence during each of %d attempts: trip again: %w", s.cfg.Pod, s.cfg.Attempts, err)
	case err != nil:
		return t, err
	}
	s.log.Warn("kill switch tripped", "by", by, "reason", reason, "from", t.From.String(), "to", t.To.String(), "already", t.Already,
		"carried", t.Carried, "not_carried", t.NotCarried, "owed", t.Owed, "took", t.Took)
	return t, nil
}

// tripOnce is rule 4: both fences are read, MySQL is told, Redis is told.
func (s *Switch) tripOnce(ctx, mctx context.Context, t *Tripped, by, reason string) error {
	r, m, err := s.readFences(ctx, mctx, t)
	switch {
	case m.Stage == holdover.StageMySQLOnly: // whatever a retired Redis says, or whether it is still there
		t.From = m
		return s.retired()
	case err != nil:
		return err
	case r.Epoch < m.Epoch && !m.Latched:
		// Every change but a kill writes Redis first. Either one came between the
		// two readings, or this Redis came back with older data.
		if r, err = s.redisFence(ctx); err != nil {
			return fmt.Errorf("pod %s: the fence in its Redis can't be read; nothing was changed: %w", s.cfg.Pod, err)
		}
		if r.Epoch < m.Epoch {
			t.From = m
			return s.older(r, m)
		}
	}
	if r.Epoch < m.Epoch { // latched: a kill stopped half way, unless Redis had followed it
		followed, err := ask(s, mctx, s.cfg.MySQL.Followed)
		if err != nil {
			return fmt.Errorf("pod %s: whether its Redis came back with older data can't be read; nothing was changed: %w", s.cfg.Pod, err)
		}
		if followed >= m.Epoch {
			if r, err = s.redisFence(ctx); err != nil { // the other kill may have ended between the two readings
				return fmt.Errorf("pod %s: the fence in its Redis can't be read; nothing was changed: %w", s.cfg.Pod, err)
			}
			if r.Epoch < m.Epoch {
				t.From = m
				return s.older(r, m)
			}
		}
	}
	agreed := larger(r, m)
	t.From = agreed
	to, err := s.target(agreed, by, reason)
	if err != nil {
		return err
	}
	// A drill's latch is about to be taken off again: a kill needs one of its own.
	rehearsed := IsDrill(r) && !isDrill(reason)
	if r.Latched && r.Stage == to.Stage && r.Epoch >= m.Epoch && !rehearsed {
		return s.alreadyLatched(mctx, t, r)
	}

	// MySQL first: it votes on nothing under an older epoch from here on, and
	// its journal can't grow any more.
	var journal []holdover.Journaled
	merr := t.step("mysql: fence and journal", func() (err error) {
		journal, err = ask(s, mctx, func(ctx context.Context) ([]holdover.Journaled, error) { return s.cfg.MySQL.TripFence(ctx, to) })
		return err
	})
	t.Owed = ""
	switch {
	case errors.Is(merr, holdover.ErrStale):
		return merr // somebody else's change is newer: read again
	case merr != nil:
		journal = nil
		t.Owed = fmt.Sprintf("MySQL of pod %s is owed the fence (%s at epoch %d) and its journal was not carried: %v. Instances raise it before they use it; until then the pod is in a fault: look at `holdover status`",
			s.cfg.Pod, to.Stage, to.Epoch, merr)
	}

	// Then one step in Redis.
	facts := carry(journal)
	t.Carried, t.NotCarried = len(facts), 0
	err = s.tripRedis(ctx, t, to, facts)
	if err != nil && len(facts) > 0 && !errors.Is(err, holdover.ErrStale) && !holdover.NoAnswer(err) {
		// A fact that Redis can't take, like one about an item that it never
		// loaded, must not stop the flip. Nothing was written by the refusal.
		t.Carried, t.NotCarried = 0, len(facts)
		t.Owed = fmt.Sprintf("%d facts of MySQL's journal were not carried: %v. They stay in the journal and the drain tries again", len(facts), err)
		err = s.tripRedis(ctx, t, to, nil)
	}
	switch {
	case err == nil:
		if merr == nil { // only noted: every instance does it too
			_ = t.step("mysql: redis followed", func() error {
				_, err := ask(s, mctx, func(ctx context.Context) (struct{}, error) {
					return struct{}{}, s.cfg.MySQL.NoteFollowed(ctx, to.Epoch)
				})
				return err
			})
		}
		t.To = to
		t.Message = fmt.Sprintf("pod %s: %s -> %s, latched at epoch %d", s.cfg.Pod, agreed.Stage, to.Stage, to.Epoch)
		return nil
	case errors.Is(err, holdover.ErrStale):
		return err
	}
	problem := "can't flip to a Redis that does not answer"
	if !holdover.NoAnswer(err) {
		problem = "Redis refused the flip"
	}
	if merr == nil {
		return fmt.Errorf("pod %s: MySQL has the fence of epoch %d now, but %s: trip again to finish: %w", s.cfg.Pod, to.Epoch, problem, err)
	}
	return fmt.Errorf("pod %s: %s: %w", s.cfg.Pod, problem, err)
}

type mysqlFence struct {
	fence holdover.Fence
	err   error
	took  time.Duration
}

// readFences reads both fences at once. MySQL's silence is no error here: its
// fence is then the zero one.
func (s *Switch) readFences(ctx, mctx context.Context, t *Tripped) (r, m holdover.Fence, err error) {
	began := time.Now()
	fromMySQL := make(chan mysqlFence, 1)
	go func() { // ends at mctx's deadline: ask does not outwait it
		f, err := ask(s, mctx, s.cfg.MySQL.Fence)
		fromMySQL <- mysqlFence{f, err, time.Since(began)}
	}()
	err = t.step("redis: read fence", func() (err error) {
		rctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
		defer cancel()
		r, err = s.cfg.Redis.Fence(rctx)
		return err
	})
	a := <-fromMySQL
	read := Step{Name: "mysql: read fence", Took: a.took}
	if a.err != nil {
		read.Err = a.err.Error()
	}
	t.Steps = append(t.Steps, read)
	switch {
	case errors.Is(err, holdover.ErrNoFence):
		return r, a.fence, fmt.Errorf("pod %s: its Redis has no fence: it was never initialized, or it lost its data, and there is nothing to flip to: %w", s.cfg.Pod, err)
	case holdover.NoAnswer(err):
		return r, a.fence, fmt.Errorf("pod %s: can't flip to a Redis that does not answer; nothing was changed: %w", s.cfg.Pod, err)
	case err != nil:
		return r, a.fence, fmt.Errorf("pod %s: the fence in its Redis can't be read; nothing was changed: %w", s.cfg.Pod, err)
	}
	return r, a.fence, nil
}

// target is the table of stages: where a trip from the agreed fence leads.
func (s *Switch) target(agreed holdover.Fence, by, reason string) (holdover.Fence, error) {
	to := holdover.Fence{Pod: s.cfg.Pod, Epoch: agreed.Epoch + 2, Latched: true, By: by, Reason: reason, At: time.Now().UTC()}
	switch agreed.Stage {
	case holdover.StageRedis, holdover.StageShadow:
		to.Stage = agreed.Stage
	case holdover.StageJoint, holdover.StageMySQL:
		to.Stage = holdover.StageShadow
	case holdover.StageMySQLOnly:
		return to, s.retired()
	default:
		return to, fmt.Errorf("pod %s: its fence has no stage (%s): %w: initialize the pod first", s.cfg.Pod, agreed, holdover.ErrNotReady)
	}
	return to, nil
}

// older names a Redis that is behind MySQL's fence m and can't be raised. What it
// had is in MySQL where MySQL decides, and nowhere else where Redis does.
func (s *Switch) older(r, m holdover.Fence) error {
	do := fmt.Sprintf("`holdover verify --pod %s --repair --reason TEXT` fills it from MySQL", s.cfg.Pod)
	if m.Stage != holdover.StageMySQL {
		do = fmt.Sprintf("bring back its own data (AOF, RDB or a replica); what it costs when that is lost for good, `holdover status --pod %s` says", s.cfg.Pod)
	}
	return fmt.Errorf("pod %s: its Redis is at epoch %d and MySQL at %d: %w: it came back with older data, and would sell again what was sold since: %s", s.cfg.Pod, r.Epoch, m.Epoch, ErrRefused, do)
}

func (s *Switch) retired() error {
	return fmt.Errorf("pod %s is in mysql-only: %w: its Redis knows no hold and can't decide: `holdover rollout return --pod %s --confirm %s --reason TEXT` rebuilds it, after which a kill is possible", s.cfg.Pod, ErrRefused, s.cfg.Pod, s.cfg.Pod)
}

// alreadyLatched answers a second trip. It takes no new epoch; a MySQL that is
// behind is raised, which is what the first trip owed it.
func (s *Switch) alreadyLatched(mctx context.Context, t *Tripped, r holdover.Fence) error {
	t.From, t.To, t.Already = r, r, true
	t.Carried, t.NotCarried, t.Owed = 0, 0, ""
	t.Message = fmt.Sprintf("pod %s is latched in %s already, at epoch %d, by %s: %s", s.cfg.Pod, r.Stage, r.Epoch, r.By, r.Reason)
	var m holdover.Fence
	err := t.step("mysql: raise fence", func() (err error) {
		m, err = ask(s, mctx, func(ctx context.Context) (holdover.Fence, error) { return s.cfg.MySQL.RaiseFence(ctx, r) })
		return err
	})
	switch {
	case err != nil:
		t.Owed = fmt.Sprintf("MySQL of pod %s could not be shown to have fence %d: %v. Instances raise it before they use it", s.cfg.Pod, r.Epoch, err)
	case m.Epoch > r.Epoch:
		return &holdover.StaleError{Store: holdover.StoreMySQL, Asked: r.Epoch, Fence: m}
	}
	return nil
}

// tripRedis is the one call to Redis. When its answer is lost it asks once
// more: a fence that is there by then, with this epoch and text, is ours.
func (s *Switch) tripRedis(ctx context.Context, t *Tripped, to holdover.Fence, facts []holdover.Hold) error {
	call := func() error {
		return t.step(fmt.Sprintf("redis: fence and %d facts", len(facts)), func() error {
			rctx, cancel := context.WithTimeout(ctx, s.cfg.RedisTimeout)
			defer cancel()
			return s.cfg.Redis.Trip(rctx, to, facts)
		})
	}
	err := call()
	if !errors.Is(err, holdover.ErrUnknownOutcome) || ctx.Err() != nil {
		return err
	}
	err = call()
	if stale := (*holdover.StaleError)(nil); errors.As(err, &stale) && sameFence(stale.Fence, to) {
		return nil
	}
	return err
}

// carry turns journal rows into the facts that Redis lacks. A journaled hold
// that MySQL no longer knows was given back: nobody was told of it.
func carry(journal []holdover.Journaled) []holdover.Hold {
	facts := make([]holdover.Hold, 0, len(journal))
	for _, row := range journal {
		h := row.Hold
		if h.State == holdover.StateNone {
			continue
		}
		h.Firm = true // a buyer was told
		facts = append(facts, h)
	}
	return facts
}

// ask runs one MySQL call and stops waiting at ctx's deadline also when the
// driver does not, as in a COMMIT that gets no answer. One such call may be left
// behind; while it hangs, MySQL counts as silent.
func ask[T any](s *Switch, ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, s.silent(err)
	}
	select {
	case s.mysql <- struct{}{}:
	case <-ctx.Done():
		return none, s.silent(ctx.Err())
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	s.calls.Go(func() {
		defer func() { <-s.mysql }()
		value, err := call(ctx)
		done <- answer{value, err}
	})
	select {
	case a := <-done:
		if a.err != nil {
			return none, a.err
		}
		return a.value, nil
	case <-ctx.Done():
		return none, s.silent(ctx.Err())
	}
}

func (s *Switch) silent(err error) error {
	return &holdover.StoreError{Store: holdover.StoreMySQL, Pod: s.cfg.Pod, Op: "trip", Unknown: true, Err: err}
}

func larger(a, b holdover.Fence) holdover.Fence {
	if b.Epoch > a.Epoch {
		return b
	}
	return a
}

// sameFence compares what the asker chose; At is the store's.
func sameFence(a, b holdover.Fence) bool {
	return a.Epoch == b.Epoch && a.Stage == b.Stage && a.Latched == b.Latched && a.By == b.By && a.Reason == b.Reason
}
