package legacyredis

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// scripts are the changes and reads that Redis makes in one step.
type scripts struct {
	vote, copy, mark, extend, end, giveBack, apply, lookup  script
	list, look, live, counters, load, resync, owe, standing script
	fence, trip, dropFence                                  script
	heartbeat, instances, forget                            script
	legacyClear                                             script
	rebuild                                                 rebuildScripts
	drop, shiftCounter                                      script
	adjustLower, adjustSettle, adjustUndo, adjustList       script
}

// script is a script's text and digest. They are made on first use: a kill needs
// two of them, and is in a hurry.
type script func() (*redis.Script, error)

func newScripts() scripts {
	script := func(parts ...string) script {
		return sync.OnceValues(func() (*redis.Script, error) {
			var text strings.Builder
			for _, part := range append([]string{"prelude"}, parts...) {
				lua, err := luaFiles.ReadFile("lua/" + part + ".lua")
				if err != nil {
					return nil, err
				}
				text.Write(lua)
			}
			return redis.NewScript(text.String()), nil
		})
	}
	return scripts{
		vote: script("vote"), copy: script("copy"), mark: script("mark"), extend: script("extend"), end: script("end"),
		giveBack: script("give_back"), apply: script("facts", "apply"), lookup: script("lookup"),
		list: script("listed", "list"), look: script("listed", "look"), live: script("live"), owe: script("owe"), counters: script("counters"), standing: script("standing"), load: script("load"), resync: script("resync"),
		fence: script("set_fence", "fence"), trip: script("facts", "set_fence", "trip"),
		dropFence: script("drop_fence"),
		heartbeat: script("heartbeat"), instances: script("instances"), forget: script("forget"),
		legacyClear: script("legacy_clear"),
		drop:        script("drop"), shiftCounter: script("shift_counter"),
		rebuild: rebuildScripts{
			begin: script("rebuild_begin"), clear: script("rebuilding", "rebuild_clear"), holds: script("rebuilding", "rebuild_holds"),
			counters: script("rebuilding", "rebuild_counters"), adjusted: script("rebuilding", "rebuild_adjusted"),
			end: script("rebuilding", "set_fence", "rebuild_end"),
		},
		adjustLower: script("adjust_lower"), adjustSettle: script("adjust_settle"),
		adjustUndo: script("adjust_undo"), adjustList: script("adjust_list"),
	}
}

// step is one run of a script.
type step struct {
	op      string // as an operator reads it in an error
	script  script
	token   holdover.Token // zero when none is concerned
	shop    int64          // for refusals; zero when not known
	asked   holdover.Epoch // for refusals
	writes  bool           // a lost answer leaves the outcome unknown
	control bool           // use the connections that buyers don't share
	timeout time.Duration  // zero: Config.OpTimeout
}

// run runs the script and returns its answer, or the refusal it gave as one of
// the root's errors.
func (s *Store) run(ctx context.Context, st step, args ...any) (reply, error) {
	if st.timeout == 0 {
		st.timeout = s.cfg.OpTimeout
	}
	if err := ctx.Err(); err != nil {
		return reply{}, s.failure(st.op, st.token, false, context.Cause(ctx)) // not sent
	}
	ctx, cancel := context.WithTimeout(ctx, st.timeout)
	defer cancel()
	client := s.buyers
	if st.control {
		client = s.control
	}
	script, err := st.script()
	if err != nil {
		return reply{}, s.failure(st.op, st.token, false, err)
	}
	head := []any{s.cfg.Prefix, s.cfg.CounterTemplate, s.cfg.GiveBackWindow.Milliseconds(), s.cfg.EndRetention.Milliseconds()}
	values, err := script.Run(ctx, client, []string{s.fence}, append(head, args...)...).Slice()
	if err != nil {
		return reply{}, s.failure(st.op, st.token, st.writes, err)
	}
	r := reply{values: values}
	status := r.text()
	if status != "ok" {
		return reply{}, s.refusal(st, status, &r)
	}
	return r, nil
}

// failure is the error of a call that got no usable answer. It may have been
// executed unless it certainly never reached Redis, or Redis answered with an
// error: a script raises its errors before it writes.
func (s *Store) failure(op string, token holdover.Token, writes bool, err error) error {
	return &holdover.StoreError{
		Store: holdover.StoreRedis, Pod: s.cfg.Pod, Op: op, Token: token,
		Unknown: writes && !neverHappened(err), Err: err,
	}
}

func neverHappened(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return true
	}
	var wrong *wrongServerError
	var answered redis.Error
	return errors.As(err, &wrong) || errors.As(err, &answered) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// refusal turns a script's no into an error. Nothing was written.
func (s *Store) refusal(st step, status string, r *reply) error {
	switch status {
	case "stale":
		f := r.list()
		fence, err := f.fence()
		if err != nil {
			return s.failure(st.op, st.token, false, err)
		}
		return &holdover.StaleError{Store: holdover.StoreRedis, Asked: st.asked, Fence: fence}
	case "no-fence":
		return fmt.Errorf("redis of pod %s: %s: %w: it was never initialized, or it lost its data", s.cfg.Pod, st.op, holdover.ErrNoFence)
	case "rebuilding":
		return fmt.Errorf("redis of pod %s: %s: %w: it is being rebuilt from mysql, repeat it after that", s.cfg.Pod, st.op, holdover.ErrNoFence)
	case "rebuild-taken":
		return fmt.Errorf("redis of pod %s: %s: %w: %s is rebuilding it: wait until that has ended, or %s after its last sign of life", s.cfg.Pod, st.op, holdover.ErrTryAgain, r.text(), s.cfg.RebuildLease)
	case "rebuild-lost":
		return fmt.Errorf("redis of pod %s: %s: %w: what the rebuild had written is not there any more, or it was never begun: begin it anew", s.cfg.Pod, st.op, holdover.ErrTryAgain)
	case "other-pod":
		return s.failure(st.op, st.token, false, s.otherPod(r.text()))
	case "ended":
		state, err := holdover.ParseState(r.text())
		if err != nil {
			return s.failure(st.op, st.token, false, err)
		}
		return holdover.EndError(st.token, state)
	case "reused":
		return fmt.Errorf("hold %s: %w", st.token, holdover.ErrTokenReused)
	case "unknown":
		return fmt.Errorf("hold %s: %w", st.token, holdover.ErrUnknownHold)
	case "no-part":
		return &holdover.InvalidError{Field: "lines", Value: r.text(), Problem: r.text()}
	case "claim-pending":
		return fmt.Errorf("hold %s: %w", st.token, holdover.ErrClaimPending)
	case "try-again":
		return fmt.Errorf("redis of pod %s: item %s is overbooked: %w", s.cfg.Pod, r.text(), holdover.ErrTryAgain)
	case "too-many":
		return s.failure(st.op, st.token, false, fmt.Errorf("there are %s: too many to be read at one moment", r.text()))
	case "not-loaded":
		shop, item := r.text(), r.text()
		return fmt.Errorf("redis of pod %s has no counter for item %s of shop %s: %w: load it before selling", s.cfg.Pod, item, shop, holdover.ErrNotLoaded)
	case "bad-counter":
		key, problem := r.text(), r.text()
		return s.failure(st.op, st.token, false, fmt.Errorf("counter %s can't be used: %s; nothing was written, repair the key and load it anew", key, problem))
	case "no-lines":
		return &holdover.InvalidError{Field: "lines", Problem: "are missing: redis does not know hold " + st.token.String() + " and can't tell its units"}
	case "short":
		short, err := r.shortages()
		if err != nil {
			return s.failure(st.op, st.token, false, err)
		}
		return &holdover.OutOfStockError{Store: holdover.StoreRedis, Shop: st.shop, Short: short}
	default:
		return s.failure(st.op, st.token, false, fmt.Errorf("a script answered %q", status))
	}
}

// reply reads a script's answer value by value. The first value that is not
// what was expected spoils it; end reports that.
type reply struct {
	values []any
	err    error
}

func (r *reply) next() any {
	if len(r.values) == 0 {
		r.fail("the answer is too short")
		return nil
	}
	v := r.values[0]
	r.values = r.values[1:]
	return v
}

func (r *reply) fail(problem string) {
	if r.err == nil {
		r.err = errors.New("unexpected answer of a script: " + problem)
	}
}

func (r *reply) text() string {
	switch v := r.next().(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		r.fail(fmt.Sprintf("%T where text was expected", v))
		return ""
	}
}

func (r *reply) number() int64 {
	n, err := strconv.ParseInt(r.text(), 10, 64)
	if err != nil {
		r.fail(err.Error())
	}
	return n
}

func (r *reply) list() *reply {
	v, ok := r.next().([]any)
	if !ok {
		r.fail("a list was expected")
	}
	return &reply{values: v}
}

func (r *reply) numbers() []int64 {
	l := r.list()
	numbers := make([]int64, 0, len(l.values))
	for len(l.values) > 0 {
		numbers = append(numbers, l.number())
	}
	if l.err != nil {
		r.fail(l.err.Error())
	}
	return numbers
}

func (r *reply) shortages() ([]holdover.Shortage, error) {
	l := r.list()
	var short []holdover.Shortage
	for len(l.values) > 0 {
		s := l.list()
		short = append(short, holdover.Shortage{Item: s.number(), Group: s.number(), Want: s.number(), Left: s.number()})
		if s.err != nil {
			return nil, s.err
		}
	}
	return short, errors.Join(r.err, l.err)
}
