package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/httpapi"
	"holdover/killswitch"
	"holdover/mysqlpool"
	"holdover/rollout"
)

// ErrDrillRefused: a drill is never worth a loss, and the pod is as it was.
// ErrDrillFailed: the pod was tripped, and the drill did not pass.
var (
	ErrDrillRefused = errors.New("no drill now")
	ErrDrillFailed  = errors.New("the drill failed")
)

// DrillOptions say who rehearses the kill, and what comes after it.
type DrillOptions struct {
	By, Reason string
	DryRun     bool
	Desired    rollout.Desired // what the flag says: where the pod goes afterwards
	Dwell      time.Duration   // the shortest stay in a stage on the way there
}

// DrilledPod is what a drill did, or with DryRun would do.
type DrilledPod struct {
	Pod     string           `json:"pod"`
	DryRun  bool             `json:"dry_run,omitempty"`
	Would   string           `json:"would,omitempty"` // with DryRun
	OK      bool             `json:"ok"`              // all acknowledged in time, and the latch is off
	From    *holdover.Fence  `json:"from"`            // what was agreed before; null: nothing
	Latched *holdover.Fence  `json:"latched"`         // the drill's latch; null: it came to none
	To      *holdover.Fence  `json:"to"`              // what is agreed now, as far as the drill knows
	Reasons []httpapi.Reason `json:"reasons"`         // why there was none

	KillMS          float64  `json:"kill_ms"`    // from the trip's beginning to the last acknowledgement, or how long was waited
	RestoreMS       float64  `json:"restore_ms"` // the same for the restore
	Acknowledged    []string `json:"acknowledged"`
	Missing         []string `json:"missing"`         // alive when it began, and had not acknowledged the latch in time
	RestoreMissing  []string `json:"restore_missing"` // the same for the restore
	Carried         int      `json:"carried"`         // facts of MySQL's journal
	NotCarried      int      `json:"not_carried"`
	Restored        bool     `json:"restored"`             // by this drill
	TakenOver       string   `json:"taken_over,omitempty"` // somebody else's fence, which was left alone
	Problem         string   `json:"problem,omitempty"`    // why it is not ok
	VoidGo          *VoidGo  `json:"void_go,omitempty"`    // a go that does not count any more after the drill
	Recorded        bool     `json:"recorded"`
	Now             string   `json:"now,omitempty"`
	Next            string   `json:"next,omitempty"`
	recordingFailed error
}

// VoidGo is a signed go that a drill makes void: it is about an epoch that is over.
type VoidGo struct {
	As    string         `json:"as"`
	Stage holdover.Stage `json:"stage"`
	Epoch holdover.Epoch `json:"epoch"`
	At    time.Time      `json:"at"`
}

// goAt is the go that counts at the agreement, where steps need one; nil: none.
func (s *Stores) goAt(ctx context.Context, agreed holdover.Fence) (*VoidGo, error) {
	if !s.rules.RequireSignoff {
		return nil, nil
	}
	last, found, err := s.MySQL.LastSignOff(ctx, agreed.Epoch)
	if err != nil || !found || last.Decision != mysqlpool.DecisionGo {
		return nil, err
	}
	return &VoidGo{last.As, last.Stage, last.Epoch, last.At}, nil
}

// drillRecordTime bounds the record of a drill, which is made also when the
// command was interrupted.
const drillRecordTime = 3 * time.Second

// Drill rehearses the kill: it asks first whether a kill at this moment would lose
// anything, then trips, waits for every live instance, restores at once and keeps
// the outcome. Errors: ErrDrillRefused, with the reasons in the result;
// ErrDrillFailed; any other: it is not over as it should be, and the error says
// what to do.
func Drill(ctx context.Context, s *Stores, o DrillOptions) (DrilledPod, error) {
	d := DrilledPod{Pod: s.Name, DryRun: o.DryRun, Reasons: []httpapi.Reason{}, Acknowledged: []string{}, Missing: []string{}, RestoreMissing: []string{}}
	if err := killswitch.CheckWho(o.By, killswitch.DrillPrefix+o.Reason); err != nil {
		return d, err
	}
	before := s.Facade.Assess(ctx)
	tellDrill(s.Name, &before)
	if before.Agreed.Epoch > 0 {
		d.From, d.To = &before.Agreed, &before.Agreed
	}
	if why := againstDrill(s, before); len(why) > 0 {
		d.Reasons = apiReasons(why)
		return d, d.refused(dualwrite.Texts(why))
	}
	goes, err := s.goAt(ctx, before.Agreed)
	if err != nil {
		return d, fmt.Errorf("pod %s: nothing was changed: whose go the drill would make void can't be read: bring MySQL back and drill again: %w", s.Name, err)
	}
	if o.DryRun {
		d.VoidGo = goes
		d.Would = wouldDrill(s, before.Agreed, goes, o)
		return d, nil
	}
	done, err := s.Switch.Drill(ctx, o.By, o.Reason, ackWait)
	if done.Tripped.To.Epoch == 0 || done.Tripped.Already {
		if errors.Is(err, killswitch.ErrRefused) { // somebody came in between
			why := dualwrite.Reason{Code: "refused", Text: err.Error(), Do: "look at `holdover status --pod " + s.Name + "`"}
			if other := drillLatch(s.Name, done.Tripped.To, time.Now()); other != nil {
				why = *other
			}
			d.Reasons = apiReasons([]dualwrite.Reason{why})
			return d, d.refused(why.Text)
		}
		return d, err
	}
	d.VoidGo = goes
	d.note(done, err)
	d.say(s, o, done, err)
	d.record(ctx, s, o)
	switch {
	case err != nil:
		return d, err
	case !d.OK:
		return d, fmt.Errorf("pod %s: %w: %s", s.Name, ErrDrillFailed, d.Problem)
	case d.recordingFailed != nil:
		return d, fmt.Errorf("pod %s: the drill passed, but that could not be kept, so readiness does not know of it: bring MySQL back and drill again: %w", s.Name, d.recordingFailed)
	}
	return d, nil
}

func (d *DrilledPod) refused(why string) error {
	return fmt.Errorf("pod %s: %w, nothing was changed: %s", d.Pod, ErrDrillRefused, why)
}

// againstDrill is what a kill would lose at this moment, and what would keep a
// drill from its end. Nothing overrides it.
func againstDrill(s *Stores, a dualwrite.Assessment) []dualwrite.Reason {
	redisDecides := a.Agreed.Stage == holdover.StageRedis || a.Agreed.Stage == holdover.StageShadow // its latch moves nothing
	why := slices.DeleteFunc(slices.Clone(a.Back.Reasons), func(r dualwrite.Reason) bool {
		return r.Code == dualwrite.CodeAtTheEnd || redisDecides && slices.Contains(lags, r.Code)
	})
	alive := slices.ContainsFunc(a.Instances, func(i holdover.Instance) bool { return i.Age <= s.maxAge })
	if a.RedisErr == nil && !alive && a.Agreed.Epoch > 0 {
		why = append(why, dualwrite.Reason{Code: "nobody-alive", Text: "no instance is alive, whose acknowledgement could be waited for", Do: "start one: holdover serve"})
	}
	return why
}

// codeDrillLatch is the code of the warning about a latch that a drill has put on.
const codeDrillLatch = "drill-latch"

// drillLatch says of a latch that is a drill's whose it is, and whether it goes by
// itself; nil: it is none. The times are the store's and this machine's.
func drillLatch(pod string, f holdover.Fence, now time.Time) *dualwrite.Reason {
	if !f.Latched || !killswitch.IsDrill(f) {
		return nil
	}
	stood := max(now.Sub(f.At), 0).Round(time.Second)
	why := dualwrite.Reason{
		Code: codeDrillLatch, Number: stood.Seconds(),
		Text: fmt.Sprintf("a drill by %s is under way since %s, for %s (%s)", f.By, f.At.UTC().Format(time.RFC3339), stood, strings.TrimPrefix(f.Reason, killswitch.DrillPrefix)),
		Do:   fmt.Sprintf("wait: it takes its latch off itself, within %s", killswitch.LongestDrill),
	}
	if stood > killswitch.LongestDrill {
		why.Text = fmt.Sprintf("the latch is left over from a drill by %s of %s (%s): it has stood for %s, no drill lasts %s, so its command has ended and nobody takes it off",
			f.By, f.At.UTC().Format(time.RFC3339), strings.TrimPrefix(f.Reason, killswitch.DrillPrefix), stood, killswitch.LongestDrill)
		why.Do = "holdover restore --pod " + pod + " --reason TEXT"
	}
	return &why
}

// tellDrill makes a drill's latch known as one wherever it speaks against a step,
// and warns of it.
func tellDrill(pod string, a *dualwrite.Assessment) {
	why := drillLatch(pod, a.Agreed, a.At)
	if why == nil {
		return
	}
	for _, reasons := range [][]dualwrite.Reason{a.Forward.Reasons, a.Back.Reasons} {
		for i := range reasons {
			if reasons[i].Code == "latched" {
				reasons[i].Text, reasons[i].Do = why.Text, why.Do
			}
		}
	}
	a.Warnings = append(a.Warnings, *why)
}

// lags are the reasons that say that MySQL follows later, or Redis does: no loss
// while Redis decides before and after.
var lags = []string{"mirror-lag", "unmirrored", "claims-pending"}

// note takes over what the switch has measured.
func (d *DrilledPod) note(done killswitch.Drilled, err error) {
	d.From, d.Latched, d.To = &done.Tripped.From, &done.Tripped.To, &done.Tripped.To
	d.Carried, d.NotCarried = done.Tripped.Carried, done.Tripped.NotCarried
	d.KillMS, d.RestoreMS = milliseconds(done.KillTook), milliseconds(done.RestoreTook)
	d.Acknowledged = acknowledged(d.Acknowledged, done.Acks)
	d.Missing, d.RestoreMissing = behind(d.Missing, done.Missing), behind(d.RestoreMissing, done.RestoreMissing)
	switch {
	case done.TakenOver != nil:
		d.To, d.TakenOver = done.TakenOver, done.TakenOver.String()
	case err == nil, done.Restored.To.Epoch > d.Latched.Epoch && !done.Restored.To.Latched: // the second: what a failed trip left behind
		d.To, d.Restored = &done.Restored.To, true
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// say judges the drill and puts it into sentences.
func (d *DrilledPod) say(s *Stores, o DrillOptions, done killswitch.Drilled, err error) {
	var problems []string
	problem := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if done.Interrupted {
		problem("it was interrupted, so nobody can say that everybody had acknowledged in time")
	} else {
		if len(d.Missing) > 0 {
			problem("not acknowledged within %s: %s: look at that instance's log, restart it, and drill again; the stores refuse its old epoch all the same", ackWait, strings.Join(d.Missing, "; "))
		}
		if len(d.RestoreMissing) > 0 {
			problem("the restore was not acknowledged within %s: %s", ackWait, strings.Join(d.RestoreMissing, "; "))
		}
		if len(d.Acknowledged) == 0 && len(d.Missing) == 0 {
			problem("no instance was left to acknowledge")
		}
	}
	if done.AcknowledgeFail != "" {
		problem("who has acknowledged is not known: %s", done.AcknowledgeFail)
	}
	if d.NotCarried > 0 || done.Tripped.Owed != "" {
		problem("%s", done.Tripped.Owed)
	}
	if done.Restored.Owed != "" {
		problem("%s", done.Restored.Owed)
	}
	if d.TakenOver != "" {
		problem("somebody else moved the pod meanwhile, and the drill has left it alone: %s", d.TakenOver)
	}
	if err != nil {
		problem("%v", err)
	}
	d.OK, d.Problem = len(problems) == 0, strings.Join(problems, "; ")
	d.Now = fmt.Sprintf("the pod is in %s at epoch %d", d.To.Stage, d.To.Epoch)
	switch {
	case d.To.Latched:
		d.Now += ", LATCHED by " + d.To.By + ": " + d.To.Reason
		d.Next = fmt.Sprintf("look at `holdover status --pod %s`; when the cause is gone: holdover restore --pod %s --reason TEXT", d.Pod, d.Pod)
	default:
		d.Now += ", without a latch"
		d.Next = afterDrill(s, d.To.Stage, o) + d.VoidGo.is("is")
	}
}

// record keeps the outcome, also of a drill that failed or was interrupted.
func (d *DrilledPod) record(ctx context.Context, s *Stores, o DrillOptions) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drillRecordTime)
	defer cancel()
	d.recordingFailed = s.MySQL.RecordDrill(ctx, holdover.Drill{
		Pod: d.Pod, By: o.By, Reason: o.Reason, From: d.From.Stage, Epoch: d.Latched.Epoch, KillMS: int64(d.KillMS + 0.5), RestoreMS: int64(d.RestoreMS + 0.5),
		Instances: len(d.Acknowledged) + len(d.Missing), Missing: strings.Join(d.Missing, "; "), OK: d.OK, Problem: d.Problem,
	})
	d.Recorded = d.recordingFailed == nil
}

// is says what becomes of the go; nothing where there was none.
func (g *VoidGo) is(verb string) string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("; the go of %s for %s at epoch %d (signed at %s) %s void by the drill: sign again after it (holdover report sign)", g.As, g.Stage, g.Epoch, g.At.UTC().Format(time.RFC3339), verb)
}

func wouldDrill(s *Stores, from holdover.Fence, goes *VoidGo, o DrillOptions) string {
	lands := from.Stage
	text := fmt.Sprintf("latch the pod in %s, where Redis decides already, wait for every instance, and take the latch off at once: no truth changes. Afterwards: ", from.Stage)
	if from.Stage == holdover.StageJoint || from.Stage == holdover.StageMySQL {
		lands = holdover.StageShadow
		text = fmt.Sprintf("kill in earnest: flip the pod from %s to shadow, where Redis decides, carry MySQL's journal over, wait for every instance, and take the latch off at once. Afterwards: ", from.Stage)
	}
	return text + afterDrill(s, lands, o) + goes.is("would be")
}

// afterDrill says where the driver takes the pod, and how long that is at least.
func afterDrill(s *Stores, now holdover.Stage, o DrillOptions) string {
	if !o.Desired.Known {
		return fmt.Sprintf("in %s; the flag says nothing now (%s): a running instance goes on with the last good one", now, o.Desired.Err)
	}
	to := min(o.Desired.Stage, holdover.StageMySQL) // no flag goes further
	if to == now {
		return fmt.Sprintf("stays in %s, as the flag says", now)
	}
	path, steps := now.String(), 0
	for stage := now; stage != to; steps++ {
		stage = stage.Toward(to)
		path += " -> " + stage.String()
	}
	text := fmt.Sprintf("the driver takes it %s, at the earliest in %s (%s in each stage), each step when it is ready for it", path, time.Duration(steps)*o.Dwell, o.Dwell)
	if to > now {
		text += ", with a verification before it where power moves"
	}
	if s.rules.needsSignoff(max(now, holdover.StageShadow), to) {
		text += "; a step forward waits for a go that is signed after the drill (holdover report sign)"
	}
	return text
}
