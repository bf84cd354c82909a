package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdover"
	"holdover/internal/app"
	"holdover/internal/httpapi"
)

// The longest waits for things that come by themselves on a healthy pod.
const (
	quietTime = 45 * time.Second
	stageTime = 60 * time.Second
	lookTime  = 3 * time.Second
)

// goTo takes the pod to a stage on its legal way, with nothing else going on.
func (w *world) goTo(ctx context.Context, stage holdover.Stage) error {
	if err := w.wantStage(stage); err != nil {
		return err
	}
	last := ""
	err := await(ctx, stageTime, "the pod is in "+stage.String(), func() (bool, error) {
		look, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		r, m, err := w.fences(look)
		if err != nil {
			return false, err
		}
		if r.Latched {
			_, err := app.Restore(ctx, w.operating, "torture", "the next schedule", false)
			last = fmt.Sprint("restore: ", err)
			return false, nil
		}
		if r.Stage != stage || r.Epoch != m.Epoch {
			last = fmt.Sprintf("redis is at %s, mysql at %s", r, m)
			return false, nil
		}
		s, err := w.instances[0].operator().Pod(look, podName)
		if err != nil {
			last = err.Error()
			return false, nil
		}
		last = fmt.Sprintf("instances %v", s.Instances)
		return acknowledged(s, r.Epoch), nil
	})
	if err != nil {
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
		defer cancel()
		s, statusErr := w.instances[0].operator().Pod(look, podName)
		return fmt.Errorf("%w: %s; next: %s; forward: %v (%v)", err, last, s.Next, s.Readiness.Forward.Reasons, statusErr)
	}
	return nil
}

func acknowledged(s httpapi.PodStatus, epoch holdover.Epoch) bool {
	live := 0
	for _, in := range s.Instances {
		if in.AgeMS > 1000 {
			continue
		}
		if in.Epoch != epoch {
			return false
		}
		live++
	}
	return live == instances
}

// errNotQuiet: something is left to carry over although nothing stands in its
// way any more.
var errNotQuiet = errors.New("the pod does not become quiet")

// quiet waits until nothing is left to carry over: every instance serves, both
// fences are one, no fact is in the journal, no claim is only marked, and no
// instance has work in its memory. unmirrored is what is left when it is not in
// time.
func (w *world) quiet(ctx context.Context) (unmirrored int64, err error) {
	var left []string
	err = await(ctx, quietTime, errNotQuiet.Error(), func() (bool, error) {
		unmirrored, left = 0, nil
		look, cancel := context.WithTimeout(ctx, lookTime)
		defer cancel()
		r, m, err := w.fences(look)
		if err != nil {
			return false, err
		}
		if r.Epoch != m.Epoch {
			left = append(left, fmt.Sprintf("redis is at epoch %d, mysql at %d", r.Epoch, m.Epoch))
		}
		var rows int64
		if err := w.db.QueryRowContext(look, "SELECT COUNT(*) FROM holdover_unmirrored").Scan(&rows); err != nil {
			return false, err
		}
		marked, err := w.redis.ZCard(look, "claiming").Result()
		if err != nil {
			return false, err
		}
		unmirrored = rows + marked
		if unmirrored > 0 {
			left = append(left, fmt.Sprintf("%d facts in the journal, %d claims marked", rows, marked))
		}
		for _, in := range w.instances {
			s, err := in.operator().Pod(look, podName)
			if err != nil {
				left = append(left, fmt.Sprintf("%s: %v", in.name, err))
				continue
			}
			if !acknowledged(s, r.Epoch) {
				left = append(left, fmt.Sprintf("%s sees %v", in.name, s.Instances))
			}
			if s.Lanes.Depth > 0 {
				unmirrored += s.Lanes.Depth
				left = append(left, fmt.Sprintf("%s has %d pieces of mirror work", in.name, s.Lanes.Depth))
			}
			for _, other := range s.Instances {
				// A debt is no work that is late: the other store has no unit for it.
				busy := other.Busy - s.Debts
				if other.Name == in.name && busy > 0 && other.AgeMS < 1000 {
					unmirrored += busy
					left = append(left, fmt.Sprintf("%s has %d late or unmirrored", in.name, busy))
				}
			}
		}
		return len(left) == 0, nil
	})
	if err != nil && ctx.Err() == nil && len(left) > 0 {
		return max(unmirrored, 1), fmt.Errorf("%w within %s: %s", errNotQuiet, quietTime, strings.Join(left, "; "))
	}
	return unmirrored, err
}
