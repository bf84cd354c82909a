package torture

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/faults"
	"holdover/killswitch"
	"holdover/rollout"
)

// happen runs one action to its end: a fault is over when it returns, a step is
// answered. An error is about the campaign's own means.
func (w *world) happen(ctx context.Context, a Action, f shopFront, t *trail) error {
	if a.Do != "" {
		return w.step(ctx, a, t)
	}
	if a.Fault != NoFault {
		t.note("fault %s begins (%s)", a.Fault, a)
		defer t.note("fault %s is over", a.Fault)
	}
	switch a.Fault {
	case KillInstance:
		in := w.instances[a.Who]
		if err := in.kill(); err != nil {
			return err
		}
		wait(ctx, a.For/4)
		return in.start()
	case PauseInstance:
		in := w.instances[a.Who]
		return errors.Join(in.signal(syscall.SIGSTOP), paused(ctx, a.For), in.signal(syscall.SIGCONT))
	case KillMySQL:
		if err := w.stack.StopMySQL(syscall.SIGKILL); err != nil {
			return err
		}
		wait(ctx, a.For/4)
		return w.stack.StartMySQL(context.WithoutCancel(ctx))
	case PauseMySQL:
		return errors.Join(w.stack.SignalMySQL(syscall.SIGSTOP), paused(ctx, a.For), w.stack.SignalMySQL(syscall.SIGCONT))
	case KillRedis, LoseRedis:
		if err := w.stack.StopRedis(podName, syscall.SIGKILL); err != nil {
			return err
		}
		wait(ctx, a.For/4)
		return w.stack.StartRedis(context.WithoutCancel(ctx), podName, a.Fault == KillRedis)
	case PauseRedis:
		return errors.Join(w.stack.SignalRedis(podName, syscall.SIGSTOP), paused(ctx, a.For), w.stack.SignalRedis(podName, syscall.SIGCONT))
	case LockWait:
		return w.lockRows(ctx, f, a.For)
	case Connections, ReadOnly:
		return w.setMySQL(ctx, a)
	case ClientPause:
		err := w.redis.Do(ctx, "CLIENT", "PAUSE", a.For.Milliseconds(), "ALL").Err()
		return errors.Join(err, paused(ctx, a.For))
	case NoFault:
		return nil
	case FlagGone:
		return errors.Join(os.Rename(w.flagFile(), w.flagFile()+".gone"), paused(ctx, a.For), w.flagBack())
	}
	w.onWires(ctx, a)
	return nil
}

// paused waits; only the end of the campaign ends it early, and what was begun
// has to be ended all the same.
func paused(ctx context.Context, d time.Duration) error {
	wait(ctx, d)
	return nil
}

// flagBack moves the file back, unless somebody wrote a new one meanwhile.
func (w *world) flagBack() error {
	if _, err := os.Stat(w.flagFile()); err == nil {
		return os.Remove(w.flagFile() + ".gone")
	}
	return os.Rename(w.flagFile()+".gone", w.flagFile())
}

// onWires is every fault of connections.
func (w *world) onWires(ctx context.Context, a Action) {
	var hit []*faults.Proxy
	for i, in := range w.instances {
		if a.Who < 0 || a.Who == i {
			hit = append(hit, in.wires.to(a.Store))
		}
	}
	if a.Who == everybody {
		hit = append(hit, w.operator.to(a.Store))
	}
	var mode faults.Mode
	switch a.Fault {
	case Cut:
		mode.Refuse = true
	case Slow:
		mode.Delay = time.Duration(a.Many) * time.Millisecond
	case HalfOpen:
		mode.LoseRequests, mode.LoseReplies = true, true
	case LostReplies:
		mode.LoseReplies = true
	case LateRequests:
		mode.HoldRequests = true
	}
	for _, p := range hit {
		p.Set(mode)
		switch a.Fault {
		case Cut, CutOnce:
			p.Cut()
		case LostReply:
			p.LoseNext(a.Many)
		}
	}
	wait(ctx, a.For)
	for _, p := range hit {
		p.Heal()
	}
}

// lockRows keeps the shop's rows locked, as a long transaction of somebody else
// does.
func (w *world) lockRows(ctx context.Context, f shopFront, d time.Duration) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("lock rows: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // it changed nothing
	for _, table := range []string{"pool_state", "inventory_ledger", "reservation_units"} {
		if _, err := tx.ExecContext(ctx, "SELECT COUNT(*) FROM "+table+" WHERE shop_id = ? AND item_id <= 2 FOR UPDATE", f.shop); err != nil {
			return fmt.Errorf("lock rows of %s: %w", table, err)
		}
	}
	wait(ctx, d)
	return nil
}

// setMySQL changes a global setting for a while. Lowering the connections counts
// once the open ones are gone.
func (w *world) setMySQL(ctx context.Context, a Action) error {
	on, off := "SET GLOBAL max_connections = 3", "SET GLOBAL max_connections = 2000"
	if a.Fault == ReadOnly {
		on, off = "SET GLOBAL super_read_only = ON", "SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF"
		if w.stack.Versions().MariaDB {
			on, off = "SET GLOBAL read_only = ON", "SET GLOBAL read_only = OFF"
		}
	}
	conn, err := w.db.Conn(ctx) // one that is there also when no new one is let in
	if err != nil {
		return fmt.Errorf("set %s: %w", a.Fault, err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, on); err != nil {
		return fmt.Errorf("set %s: %w", a.Fault, err)
	}
	if a.Fault == Connections {
		for _, in := range w.instances {
			in.wires.mysql.Cut()
		}
	}
	wait(ctx, a.For)
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), off); err != nil {
		return fmt.Errorf("end %s: %w", a.Fault, err)
	}
	return nil
}

// stepLimit bounds one step of an operator.
const stepLimit = 6 * time.Second

// step is what the operator does. That it fails is part of the story: a kill
// needs Redis, a restore needs both.
func (w *world) step(ctx context.Context, a Action, t *trail) error {
	limit := stepLimit
	if a.Do == doRetire { // a complete verification comes first, and another after it
		limit *= 5
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t.note("%s begins", a)
	if a.Do == doFlag {
		return w.wantStage(a.Stage)
	}
	const by, why = "torture", "a schedule"
	var said string
	var err error
	switch {
	case a.Who >= 0 && a.Do == doKill:
		var raw json.RawMessage
		raw, err = w.instances[a.Who].operator().Kill(ctx, podName, by, why, false)
		var tripped killswitch.Tripped
		if err == nil {
			err = json.Unmarshal(raw, &tripped)
		}
		said = tripped.Message + " " + tripped.Owed
	case a.Do == doRetire:
		if said, err = w.retire(ctx, by, why); err == nil {
			t.note("%s", said)
			wait(ctx, a.For)
			said, err = w.comeBack(ctx)
		}
	case a.Do == doKill:
		var killed app.Killed
		killed, err = app.Kill(ctx, w.operating, by, why, false)
		said = fmt.Sprintf("%s (carried %d) %s", killed.Message, killed.Carried, killed.Owed)
	default:
		var restored app.RestoredPod
		restored, err = app.Restore(ctx, w.operating, by, why, false)
		said = restored.Message + " " + restored.Owed
	}
	if err != nil {
		t.note("%s failed: %v", a.Do, err)
		return nil
	}
	t.note("%s: %s", a.Do, said)
	return nil
}

// retire takes the pod to mysql-only, as soon as nothing speaks against it.
func (w *world) retire(ctx context.Context, by, why string) (said string, err error) {
	for {
		retired, err := app.Retire(ctx, w.operating, rollout.Desired{}, app.RetireOptions{By: by, Reason: why, WithoutFlag: true})
		switch {
		case err == nil:
			w.retired.Add(1)
			return fmt.Sprintf("retired: now %s, %d claims applied", retired.To, retired.Claims), nil
		case !errors.Is(err, app.ErrHindered), !wait(ctx, 100*time.Millisecond):
			return "", err
		}
	}
}

// comeBack takes the pod from mysql-only to mysql.
func (w *world) comeBack(ctx context.Context) (string, error) {
	done, err := app.Return(ctx, w.operating, "torture", "a schedule", false, nil)
	return fmt.Sprintf("returned: now %s, rebuilt %t, clean %t", done.To, done.Rebuilt != nil, done.Clean), err
}

// drilled makes sure that the kill switch was used once: without, Redis is not
// retired.
func (w *world) drilled(ctx context.Context) error {
	if look := w.operating.Facade.Survey(ctx); look.MySQLErr != nil || !look.LastKill.IsZero() {
		return look.MySQLErr
	}
	_, err := app.Kill(ctx, w.operating, "torture", "a drill", false)
	return err
}

// heal ends whatever a fault that was cut short may have left.
func (w *world) heal(ctx context.Context, f Fault) error {
	ctx = context.WithoutCancel(ctx)
	for _, in := range w.instances {
		in.wires.redis.Heal()
		in.wires.mysql.Heal()
		if !in.alive() {
			if err := in.start(); err != nil {
				return err
			}
		}
	}
	w.operator.redis.Heal()
	w.operator.mysql.Heal()
	if f == ClientPause {
		return w.redis.Do(ctx, "CLIENT", "UNPAUSE").Err()
	}
	return nil
}

// fences reads both fences itself, past every proxy.
func (w *world) fences(ctx context.Context) (redisFence, mysqlFence holdover.Fence, err error) {
	values, err := w.redis.HGetAll(ctx, "fence").Result()
	if err != nil {
		return redisFence, mysqlFence, fmt.Errorf("the fence in Redis: %w", err)
	}
	if redisFence, err = fenceOf(values["epoch"], values["stage"], values["latched"] == "1"); err != nil {
		return redisFence, mysqlFence, fmt.Errorf("the fence in Redis: %w", err)
	}
	var epoch, stage string
	var latched bool
	err = w.db.QueryRowContext(ctx, "SELECT epoch, stage, latched FROM holdover_fence WHERE id = 1").Scan(&epoch, &stage, &latched)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return redisFence, mysqlFence, nil
	case err != nil:
		return redisFence, mysqlFence, fmt.Errorf("the fence in MySQL: %w", err)
	}
	mysqlFence, err = fenceOf(epoch, stage, latched)
	return redisFence, mysqlFence, err
}

// fenceOf reads a fence; none is the zero one.
func fenceOf(epoch, stage string, latched bool) (f holdover.Fence, err error) {
	if epoch == "" {
		return f, nil
	}
	if _, err := fmt.Sscan(epoch, &f.Epoch); err != nil {
		return f, err
	}
	f.Stage, err = holdover.ParseStage(stage)
	f.Latched = latched
	return f, err
}
