package dualwrite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdover"
)

// Reason is one thing that speaks against a step, with its number and what to
// do about it.
type Reason struct {
	Code   string // stable, for alerts
	Text   string
	Number float64 // how many, or how long in seconds
	Do     string
}

// Readiness says whether a step may be taken now.
type Readiness struct {
	To      holdover.Stage
	Reasons []Reason // empty: yes
}

// OK reports whether nothing speaks against the step.
func (r Readiness) OK() bool { return len(r.Reasons) == 0 }

// Codes lists the reasons' codes, each once, in their order.
func (r Readiness) Codes() []string {
	var codes []string
	for _, why := range r.Reasons {
		if !slices.Contains(codes, why.Code) {
			codes = append(codes, why.Code)
		}
	}
	return codes
}

// maxReasons bounds a readiness: what goes beyond is counted in the last one.
const maxReasons = 20

func (r *Readiness) no(code string, number float64, do, format string, args ...any) {
	r.Reasons = append(r.Reasons, Reason{Code: code, Number: number, Do: do, Text: fmt.Sprintf(format, args...)})
}

func (r *Readiness) bounded() Readiness {
	if more := len(r.Reasons) - maxReasons; more > 0 {
		r.Reasons = r.Reasons[:maxReasons:maxReasons]
		r.no("more", float64(more), "see to the others first", "and %s more", count(more, "reason"))
	}
	return *r
}

// Assessment is the readiness in both directions, from one look at the stores.
type Assessment struct {
	Survey
	Forward  Readiness
	Back     Readiness
	Warnings []Reason // what an operator should know, and what stops nothing
}

// Assess looks at both stores and judges. Back says yes when nothing would be
// lost if Redis decided from this moment on, by a step or by the kill switch.
// A verification that is missing or old is a reason here; a step makes its own.
func (f *Facade) Assess(ctx context.Context) Assessment {
	return f.assess(f.Survey(ctx))
}

// AssessBefore judges as Assess would have just before a kill, from one look
// after it: what the kill has changed is put back. It had found the agreement
// before, and so many facts in MySQL's journal.
func (f *Facade) AssessBefore(ctx context.Context, before holdover.Fence, journal int) Assessment {
	s := f.Survey(ctx)
	s.Agreed, s.Redis, s.MySQL = before, before, before
	s.Journal, s.RedisBehind = max(s.Journal, int64(journal)), false
	s.Instances = slices.Clone(s.Instances)
	for i := range s.Instances {
		s.Instances[i].Epoch = min(s.Instances[i].Epoch, before.Epoch)
	}
	return f.assess(s)
}

func (f *Facade) assess(s Survey) Assessment {
	a := Assessment{Survey: s}
	judge := func(to holdover.Stage) Readiness {
		r := f.judge(a.Survey, to)
		if r.To != a.Agreed.Stage && powerMoves(a.Agreed.Stage, to) {
			f.judgeVerified(&r, a.Survey)
		}
		return r.bounded()
	}
	a.Forward, a.Back = judge(a.Agreed.Stage.Toward(holdover.StageMySQLOnly)), judge(a.Agreed.Stage.Toward(holdover.StageRedis))
	a.Warnings = f.warnings(a.Survey)
	return a
}

// Readiness is the last assessment of the background, which Run makes every
// ReadinessEvery; false before the first one.
func (f *Facade) Readiness() (Assessment, bool) {
	if a := f.assessed.Load(); a != nil {
		return *a, true
	}
	return Assessment{}, false
}

// readinessLoop assesses until ctx ends, and logs when a verdict or its reasons
// become others.
func (f *Facade) readinessLoop(ctx context.Context) {
	if f.cfg.ReadinessEvery < 0 {
		return
	}
	said := map[string]string{}
	var seen seenRedis
	say := func(direction string, r Readiness) {
		codes := strings.Join(r.Codes(), ",")
		if key := r.To.String() + " " + codes; said[direction] != key {
			said[direction] = key
			f.log.Info("readiness", "direction", direction, "to", r.To, "ready", r.OK(), "codes", codes, "why", Texts(r.Reasons))
		}
	}
	every(ctx, f.cfg.ReadinessEvery, func() {
		a := f.Assess(ctx)
		if ctx.Err() != nil {
			return // cut short: it says nothing about the stores
		}
		seen = f.noteReplaced(ctx, a.Survey, seen)
		f.assessed.Store(&a)
		say("forward", a.Forward)
		say("back", a.Back)
	})
}

// seenRedis is which Redis was seen last, and the newest clean verification then.
type seenRedis struct {
	id    string
	clean time.Time
}

// noteReplaced records that Redis is another one than was seen before: a clean
// verification counts no more, also when the first one comes back, as after a
// failover and back. One that was verified since is not news.
func (f *Facade) noteReplaced(ctx context.Context, s Survey, was seenRedis) seenRedis {
	if s.RedisErr != nil || s.MySQLErr != nil {
		return was
	}
	before, now := cmp.Or(was.id, s.Clean.RedisID), seenRedis{s.RedisID, s.Clean.At}
	if before == "" || before == now.id || s.Clean.RedisID == now.id && s.Clean.At.After(was.clean) {
		return now
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RefreshTimeout)
	defer cancel()
	if err := f.mysql.RecordVerified(ctx, holdover.Verified{
		Pod: f.cfg.Pod, Epoch: s.Agreed.Epoch, RedisID: now.id, By: f.cfg.Instance,
		Summary: fmt.Sprintf("redis was restarted or replaced (%.16s, before it was %.16s): nothing was compared since", now.id, before),
	}); err != nil {
		f.log.Warn("that redis was replaced could not be recorded", "redis", now.id, "before", before, "err", err)
		return was
	}
	return now
}

// Texts puts reasons into one line.
func Texts(reasons []Reason) string {
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = r.Text
	}
	return strings.Join(texts, "; ")
}

// powerMoves: every step between shadow and mysql-only, either way, rests on a
// store that must know every live hold. Between redis and shadow only Redis
// decides, before and after.
func powerMoves(from, to holdover.Stage) bool {
	return max(from, to) > holdover.StageShadow
}

// MendedByVerifying reports whether a reason of this code is answered by the
// verification that a step makes: it does not keep a step from being tried.
func MendedByVerifying(code string) bool {
	switch code {
	case "never-verified", "verified-too-old", "redis-restarted", "not-verified", "holds-older-than-dual-writing":
		return true
	default:
		return false
	}
}

// Ready answers whether the pod may go to the neighbouring stage now (rule 18).
// Where power moves it ends with a complete verification of its own, whatever
// is known of earlier ones, and looks at everything once more after it: it may
// take seconds.
func (f *Facade) Ready(ctx context.Context, to holdover.Stage) (Readiness, error) {
	before := f.Survey(ctx)
	r := f.judge(before, to)
	if !r.OK() || !powerMoves(before.Agreed.Stage, to) || before.Agreed.Stage == holdover.StageMySQLOnly {
		return r.bounded(), nil
	}
	if f.cfg.Verify == nil {
		r.no("no-verification", 0, "configure Verify", "nothing verifies the two stores")
		return r, nil
	}
	clean, why, err := f.cfg.Verify(ctx)
	if err != nil {
		return r, fmt.Errorf("pod %s: verification before %s: %w", f.cfg.Pod, to, err)
	}
	after := f.Survey(ctx)
	if !clean {
		r.no("not-verified", 1, "holdover verify --pod "+f.cfg.Pod+" lists them, with --repair --reason TEXT it mends them", "the verification found differences: %s", why)
		f.judgeOlderHolds(&r, after)
		return r, nil
	}
	r = f.judge(after, to)
	switch {
	case after.Agreed.Epoch != before.Agreed.Epoch:
		r.no("moved", float64(after.Agreed.Epoch), "ask again", "the agreement moved from epoch %d to %d during the verification", before.Agreed.Epoch, after.Agreed.Epoch)
	case after.RedisID != before.RedisID:
		r.no("redis-restarted", 1, "ask again: it is verified anew", "redis was restarted or replaced during the verification")
	}
	return r.bounded(), nil
}

// Hindrances lists what speaks against a step before any verification is made.
func (f *Facade) Hindrances(ctx context.Context, to holdover.Stage) Readiness {
	r := f.judge(f.Survey(ctx), to)
	return r.bounded()
}

// judge is everything but verifications.
func (f *Facade) judge(s Survey, to holdover.Stage) Readiness {
	r := Readiness{To: to}
	stage := s.Agreed.Stage
	if s.Agreed.Epoch == 0 {
		r.no("no-agreement", 0, "bring the stores up and start an instance", "no store shows a fence")
		return r
	}
	f.judgeStores(&r, s)
	switch {
	case stage == to:
		r.no(CodeAtTheEnd, 0, "", "there is no stage beyond %s", stage)
		return r
	case stage == holdover.StageMySQLOnly:
		r.no("redis-retired", 0, fmt.Sprintf("holdover rollout return --pod %s --confirm %s --reason TEXT", f.cfg.Pod, f.cfg.Pod), "redis is retired and knows no hold: there is no way back without rebuilding it")
	}
	if s.Agreed.Latched {
		r.no("latched", 0, "holdover restore --pod "+f.cfg.Pod+" --reason TEXT", "the kill switch is latched by %s: %s", s.Agreed.By, s.Agreed.Reason)
	}
	for _, i := range s.Instances {
		if i.Age > f.cfg.InstanceMaxAge {
			continue
		}
		if i.Epoch != s.Agreed.Epoch {
			r.no("not-acknowledged", float64(i.Epoch), "wait, or stop that instance", "instance %s works with epoch %d, the pod is at %d", shortName(i), i.Epoch, s.Agreed.Epoch)
		}
		busy := i.Busy
		if i.ID == f.cfg.InstanceID {
			busy = f.Busy() // its heartbeat is older
		}
		if busy > 0 && stage.Dual() {
			r.no("mirror-lag", float64(busy), "wait; if it stays, ask that instance for its lanes: holdover status --url http://ITS-ADDRESS", "instance %s has %s of late mirror work, unmirrored tokens or debts", shortName(i), count(int(busy), "piece"))
		}
	}
	if s.Journal > 0 {
		r.no("unmirrored", float64(s.Journal), "wait for the drain", "%s not in redis yet, the oldest for %s", count(int(s.Journal), "fact"), s.JournalOldest.Round(time.Millisecond))
	}
	if s.Marked > 0 {
		more := ""
		if s.Marked >= f.cfg.SweepBatch {
			more = "at least "
		}
		r.no("claims-pending", float64(s.Marked), "wait: they are applied when mysql's ledger answers", "%s%s pending: marked in redis and not in the ledger yet", more, count(s.Marked, "claim"))
	}
	if to > stage {
		f.judgeDrill(&r, s)
	}
	if s.Lowered > 0 && to == holdover.StageMySQLOnly { // nobody looks into redis after that
		r.no("adjustments-open", float64(s.Lowered), "wait: any instance goes on with them", "%s open: redis gave up units, and mysql has not decided", count(s.Lowered, "adjustment"))
	}
	return r
}

// judgeStores is what the two stores themselves speak against.
func (f *Facade) judgeStores(r *Readiness, s Survey) {
	rebuild := "holdover verify --pod " + f.cfg.Pod + " --repair --reason TEXT rebuilds it from MySQL"
	if !s.Rebuildable {
		rebuild = fmt.Sprintf("bring back its own data (AOF, RDB or a replica): in %s redis decides, and nothing else knows all its holds", s.Agreed.Stage)
	}
	if err := s.MySQLErr; errors.Is(err, holdover.ErrNoFence) {
		r.no("fences-differ", 0, "wait: every instance raises the store that is behind", "mysql has no fence yet, redis is at epoch %d", s.Redis.Epoch)
	} else if err != nil {
		do := "bring the pod's MySQL back"
		if !holdover.NoAnswer(err) {
			do += ", or run `holdover migrate up`"
		}
		r.no("mysql-away", 0, do, "mysql does not answer: %v", err)
	}
	switch err := s.RedisErr; {
	case errors.Is(err, ErrRedisRetired) && s.Agreed.Stage != holdover.StageMySQLOnly: // a return is under way
		r.no("stale-instance", 0, "wait: this instance is reading the new agreement", "this instance has not asked redis: it still works in mysql-only, and mysql is in %s, epoch %d", s.Agreed.Stage, s.Agreed.Epoch)
		return
	case errors.Is(err, ErrRedisRetired):
		return
	case errors.Is(err, holdover.ErrNoFence):
		r.no("redis-lost-its-data", 0, rebuild, "redis has no fence: it lost its data, or is being rebuilt")
		return
	case err != nil:
		r.no("redis-away", 0, "bring the pod's Redis back", "redis does not answer: %v", err)
		return
	case s.MySQLErr != nil:
		return
	}
	v := f.view.Load()
	switch {
	case s.RedisBehind:
		r.no("redis-has-older-data", float64(s.Redis.Epoch), rebuild, "redis is at epoch %d and mysql at %d: redis came back with older data", s.Redis.Epoch, s.MySQL.Epoch)
	case s.Redis.Epoch != s.MySQL.Epoch:
		r.no("fences-differ", float64(s.Redis.Epoch), "wait: every instance raises the store that is behind", "redis is at epoch %d, mysql at %d", s.Redis.Epoch, s.MySQL.Epoch)
	case v != nil && v.Epoch != s.Agreed.Epoch:
		r.no("stale-instance", float64(v.Epoch), "wait: this instance is reading the new agreement", "this instance works with epoch %d, the fences say %d", v.Epoch, s.Agreed.Epoch)
	}
}

// judgeVerified is what speaks for another verification. It is asked where
// nothing verifies at once.
func (f *Facade) judgeVerified(r *Readiness, s Survey) {
	if s.MySQLErr != nil || errors.Is(s.RedisErr, ErrRedisRetired) {
		return // not known, or nothing to compare with
	}
	do := "holdover verify --pod " + f.cfg.Pod + ", or wait for the next one in serve"
	age := s.At.Sub(s.Clean.At)
	switch {
	case s.Clean.At.IsZero():
		r.no("never-verified", 0, do, "no verification has been clean yet")
	case s.Clean.Epoch < s.DualEpoch:
		r.no("never-verified", 0, do, "no verification has been clean since dual writing began")
	case s.RedisErr == nil && s.Clean.RedisID != s.RedisID:
		r.no("redis-restarted", 0, do, "redis was restarted or replaced since the last clean verification: what it took last may be lost")
	case age > f.cfg.VerifiedMaxAge:
		r.no("verified-too-old", age.Seconds(), do, "the last clean verification is %s old, more than %s", age.Round(time.Second), f.cfg.VerifiedMaxAge)
	}
	if s.Last.At.After(s.Clean.At) && !s.Last.Clean {
		r.no("not-verified", float64(s.Last.Differences+s.Last.Unsettled), "holdover verify --pod "+f.cfg.Pod+" lists them, with --repair --reason TEXT it mends them", "the last verification is not clean: %s", s.Last.Summary)
	}
	if s.Agreed.Stage < r.To {
		f.judgeOlderHolds(r, s)
	}
}

// judgeOlderHolds counts down holds that were granted before both stores were
// written, or by somebody who writes counters past this program: after the
// longest time to live none is left. A clean verification since then has shown
// that there is none.
func (f *Facade) judgeOlderHolds(r *Readiness, s Survey) {
	since, what := s.DualSince, "dual writing began"
	if f.cfg.ForeignSeen != nil {
		if foreign := f.cfg.ForeignSeen(); foreign.After(since) {
			since, what = foreign, "a foreign write was last seen"
		}
	}
	if s.DualEpoch == 0 || (s.Clean.Epoch >= s.DualEpoch && !s.Clean.At.Before(since)) {
		return
	}
	if left := since.Add(cmp.Or(f.cfg.Limits.MaxTTL, 24*time.Hour)).Sub(s.At); left > 0 {
		r.no("holds-older-than-dual-writing", left.Seconds(), "wait; a clean verification before that shows that none is left",
			"holds from before %s (%s) may live for another %s", what, since.UTC().Format(time.RFC3339), left.Round(time.Second))
	}
}

// warnings stop nothing.
func (f *Facade) warnings(s Survey) []Reason {
	var w Readiness
	live := map[string]int{}
	for _, i := range s.Instances {
		if i.Age <= f.cfg.InstanceMaxAge {
			if live[i.Name]++; live[i.Name] == 2 {
				w.no("same-name", 2, "give each process an instance name of its own", "two live processes are called %s", i.Name)
			}
		}
	}
	f.noteDrill(&w, s)
	return w.bounded().Reasons
}

// shortName tells two processes of one name apart.
func shortName(i holdover.Instance) string { return fmt.Sprintf("%s (%.8s)", i.Name, i.ID) }

// count says "1 fact" and "2 facts".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
