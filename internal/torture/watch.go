package torture

import (
	"context"
	"fmt"
	"sync"
	"time"

	"holdover"
	"holdover/internal/httpapi"
)

// watch looks at the pod while a schedule runs: which fences there are, and
// whether what readiness says is true.
//
// A moment at which readiness lied: an instance's status said yes to the way
// back from joint or mysql, and a hold whose grant a buyer had been told before
// that status was asked for, that nobody has asked to end or to claim, and whose
// expiry is far away, was not live in Redis when it was looked for, past every
// proxy, after the status had been answered; and still not at a second look. By
// then a flip back would have lost it, or sold its units again: MySQL's journal
// would have had to say so, and a journal with rows is a no. Where Redis was
// made to lose its data, which takes back what it had, a second yes between
// the two looks is asked for.
type watch struct {
	w     *world
	s     Schedule
	trail *trail

	mu      sync.Mutex
	changes []time.Duration // when another fence was seen
	lied    int64
	details []string
	asked   int64 // statuses that said yes
}

const (
	fenceEvery  = 20 * time.Millisecond
	statusEvery = 60 * time.Millisecond
	statusLimit = 2 * time.Second
	secondLook  = 120 * time.Millisecond
)

// run watches until ctx ends.
func (x *watch) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { x.watchFences(ctx) })
	both.Go(func() { x.watchReadiness(ctx) })
	both.Wait()
}

func (x *watch) watchFences(ctx context.Context) {
	var r, m holdover.Fence
	for wait(ctx, fenceEvery) {
		nowR, nowM, err := x.w.fences(ctx)
		if err != nil {
			continue // a store that is down has no fence to show
		}
		if nowR == r && nowM == m {
			continue
		}
		r, m = nowR, nowM
		x.trail.note("fences: redis %s at epoch %d%s, mysql %s at epoch %d%s", r.Stage, r.Epoch, latched(r), m.Stage, m.Epoch, latched(m))
		x.mu.Lock()
		x.changes = append(x.changes, x.trail.now())
		x.mu.Unlock()
	}
}

func latched(f holdover.Fence) string {
	if f.Latched {
		return " (latched)"
	}
	return ""
}

func (x *watch) watchReadiness(ctx context.Context) {
	known := map[holdover.Token]bool{} // was in Redis once
	for n := 0; wait(ctx, statusEvery); n++ {
		in := x.w.instances[n%len(x.w.instances)]
		asked := x.trail.now()
		if !x.saysYes(ctx, in) {
			continue
		}
		x.mu.Lock()
		x.asked++
		x.mu.Unlock()
		for _, h := range acknowledgedBefore(x.trail.all(), asked, time.Now()) {
			if known[h] {
				continue
			}
			state, err := x.inRedis(ctx, h)
			switch {
			case err != nil:
				continue
			case state.Live():
				known[h] = x.s.fault().Fault != LoseRedis
				continue
			}
			if x.s.fault().Fault == LoseRedis && !x.saysYes(ctx, in) {
				continue
			}
			if !wait(ctx, secondLook) {
				return
			}
			again, err := x.inRedis(ctx, h)
			if err != nil || again.Live() || !stillLive(x.trail.all(), h) {
				continue
			}
			x.mu.Lock()
			x.lied++
			x.details = append(x.details, fmt.Sprintf("readiness lied: %s, asked at %.1f ms, said yes to the way back, and hold %s, acknowledged before, is %s in redis, and %s at a second look", in.name, ms(asked), h, state, again))
			x.mu.Unlock()
			known[h] = true // once
		}
	}
}

// saysYes asks one instance whether going back is safe. A no answer is no yes.
func (x *watch) saysYes(ctx context.Context, in *instance) bool {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	s, err := in.operator().Pod(ctx, podName)
	return err == nil && yesToGoBack(s)
}

func yesToGoBack(s httpapi.PodStatus) bool {
	return s.Agreed != nil && (s.Agreed.Stage == holdover.StageJoint || s.Agreed.Stage == holdover.StageMySQL) && s.Readiness.Back.OK
}

func (x *watch) inRedis(ctx context.Context, token holdover.Token) (holdover.State, error) {
	reply, err := x.w.redis.HMGet(ctx, "hold:"+token.String(), "state").Result()
	if err != nil {
		return holdover.StateNone, err
	}
	name, _ := reply[0].(string)
	if name == "" {
		return holdover.StateNone, nil
	}
	return holdover.ParseState(name)
}

// expiryMargin is how far away an expiry must be for a hold to count as live.
const expiryMargin = 5 * time.Second

// acknowledgedBefore lists the holds that buyers were told of before a moment,
// and that nobody has asked to end or to claim until now.
func acknowledgedBefore(calls []call, moment time.Duration, now time.Time) []holdover.Token {
	var live []holdover.Token
	over := map[holdover.Token]bool{}
	for _, c := range calls {
		if c.op == "claim" || c.op == "release" {
			over[c.token] = true
		}
	}
	seen := map[holdover.Token]bool{}
	for _, c := range calls {
		if c.op == "reserve" && c.err == nil && c.end < moment && !over[c.token] && !seen[c.token] && c.res.Hold.ExpiresAt.Sub(now) > expiryMargin {
			seen[c.token] = true
			live = append(live, c.token)
		}
	}
	return live
}

func stillLive(calls []call, token holdover.Token) bool {
	for _, c := range calls {
		if c.token == token && (c.op == "claim" || c.op == "release") {
			return false
		}
	}
	return true
}
