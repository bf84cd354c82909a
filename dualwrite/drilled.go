package dualwrite

import (
	"fmt"
	"time"

	"holdover"
)

// Codes of what is said about rehearsed kills.
const (
	CodeDrill        = "drill"         // a reason against a step forward
	CodeLastDrill    = "last-drill"    // a note
	CodeNeverDrilled = "never-drilled" // a note
)

// CodeAtTheEnd is the reason where no stage lies beyond.
const CodeAtTheEnd = "at-the-end"

func (f *Facade) drillCommand() string { return "holdover drill --pod " + f.cfg.Pod + " --reason TEXT" }

// judgeDrill asks for a drill that passed and is young enough, where a bound is
// configured. The way back never waits for one.
func (f *Facade) judgeDrill(r *Readiness, s Survey) {
	if f.cfg.DrillMaxAge <= 0 || s.MySQLErr != nil {
		return
	}
	last := ""
	failed := !s.LastDrill.At.IsZero() && !s.LastDrill.OK
	if failed {
		last = fmt.Sprintf("; the last one, %s ago, failed: %s", s.drilledAgo(s.LastDrill), s.LastDrill.Problem)
	}
	age := s.At.Sub(s.PassedDrill.At)
	switch {
	case s.PassedDrill.At.IsZero():
		r.no(CodeDrill, 0, f.drillCommand(), "no drill of the kill switch has passed yet, and the last may be %s old%s", f.cfg.DrillMaxAge, last)
	case failed:
		r.no(CodeDrill, s.At.Sub(s.LastDrill.At).Seconds(), "mend it, then "+f.drillCommand(), "a drill must have passed, and the last one, %s ago, failed: %s", s.drilledAgo(s.LastDrill), s.LastDrill.Problem)
	case age > f.cfg.DrillMaxAge:
		r.no(CodeDrill, age.Seconds(), f.drillCommand(), "the last drill that passed was %s ago, and may be %s%s", s.drilledAgo(s.PassedDrill), f.cfg.DrillMaxAge, last)
	}
}

// noteDrill says how long ago the kill was rehearsed, and how fast it was.
func (f *Facade) noteDrill(w *Readiness, s Survey) {
	d := s.LastDrill
	switch {
	case s.MySQLErr != nil || s.Agreed.Stage == holdover.StageMySQLOnly:
	case !d.At.IsZero() && d.OK:
		w.no(CodeLastDrill, s.At.Sub(d.At).Seconds(), "", "drilled %s ago from %s: %d ms, %s", s.drilledAgo(d), d.From, d.KillMS, count(d.Instances, "instance"))
	case !d.At.IsZero():
		w.no(CodeLastDrill, s.At.Sub(d.At).Seconds(), "mend it, then "+f.drillCommand(), "the last drill, %s ago from %s, FAILED: %s", s.drilledAgo(d), d.From, d.Problem)
	case s.Agreed.Stage < holdover.StageShadow:
	case s.LastKill.IsZero():
		w.no(CodeNeverDrilled, 0, f.drillCommand(), "never drilled: the kill switch has never been used on this pod")
	default:
		age := s.At.Sub(s.LastKill)
		w.no(CodeLastDrill, age.Seconds(), f.drillCommand(), "never drilled; the kill switch was last used %s ago", roughly(age))
	}
}

func (s Survey) drilledAgo(d holdover.Drill) string { return roughly(s.At.Sub(d.At)) }

// roughly is a time as people say it.
func roughly(d time.Duration) string {
	if days := int(d.Hours() / 24); days > 1 {
		return fmt.Sprintf("%d days", days)
	}
	return max(d, 0).Round(time.Second).String()
}
