package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare/report"
	"holdover/dualwrite"
	"holdover/mysqlpool"
)

// codeNoSignoff is the reason of a step that waits for somebody's go.
const codeNoSignoff = "no-signoff"

// needsSignoff: each step forward after the first, which only begins to compare.
func (c RolloutConfig) needsSignoff(from, to holdover.Stage) bool {
	return c.RequireSignoff && to > from && from >= holdover.StageShadow
}

// unsigned is what speaks against a step that nobody has allowed: nil when the
// newest decision at the agreement's epoch is a go that is young enough, or when
// the step needs none.
func (s *Stores) unsigned(ctx context.Context, agreed holdover.Fence, to holdover.Stage) (*dualwrite.Reason, error) {
	if !s.rules.needsSignoff(agreed.Stage, to) {
		return nil, nil
	}
	last, found, err := s.MySQL.LastSignOff(ctx, agreed.Epoch)
	if err != nil {
		return nil, err
	}
	age := time.Since(seenUntil(last)) // by MySQL's clock: a little off does no harm
	why := &dualwrite.Reason{Code: codeNoSignoff, Do: fmt.Sprintf("holdover report --pod %s --since 7d, then holdover report sign --pod %s --as NAME --decision go --note TEXT", s.Name, s.Name)}
	switch {
	case !found:
		why.Text = fmt.Sprintf("nobody has signed a report of %s at epoch %d", agreed.Stage, agreed.Epoch)
	case last.Decision != mysqlpool.DecisionGo:
		why.Text = fmt.Sprintf("%s said %s at %s: %s", last.As, last.Decision, last.At.UTC().Format(time.RFC3339), last.Note)
	case age > s.rules.SignoffMaxAge:
		why.Text = fmt.Sprintf("the go of %s is about a report that ended %s ago, at %s, and that may be %s (it was signed at %s: %s)", last.As, age.Round(time.Second),
			last.To.UTC().Format(time.RFC3339), s.rules.SignoffMaxAge, last.At.UTC().Format(time.RFC3339), last.Note)
		why.Number = age.Seconds()
	default:
		return nil, nil
	}
	return why, nil
}

// seenUntil is the end of what was seen before a decision: of the report's period,
// which may be in the future of the signature.
func seenUntil(d holdover.SignOff) time.Time {
	if d.To.After(d.At) {
		return d.At
	}
	return d.To
}

// ErrNotSigned: the report does not bear the decision. Nothing was written.
var ErrNotSigned = errors.New("not signed")

// SignOptions are somebody's decision.
type SignOptions struct {
	As       string
	Decision string         // go or no-go
	Note     string         // why
	Digest   string         // of the report that was read; empty: whatever r has
	Read     *report.Report // that was read, of which r was made again; nil: r is what was read
	Override string         // why it is a go although the report does not pass
}

// Remake makes a report that was read again, of its pods and period, from what
// their MySQLs keep: only that is signed. Of its limits it takes those that can
// be asked for, so none is looser than the default; baseline and noise are not in
// it, and are those that it was made with. Who lives now is not looked at.
func Remake(ctx context.Context, c Config, pods []*Stores, read report.Report, baseline, noise *report.Baseline) (report.Report, error) {
	return Report(ctx, c, pods, ReportOptions{Since: read.From, Until: read.To, Baseline: baseline, Noise: noise,
		Limits: report.Limits{MustSee: read.Limits.MustSee, Waived: read.Limits.Waived}})
}

// Sign records a decision about a report of the pod, with the pod's stage and
// epoch. A go needs a report that passes, in which no gate was waived that does
// not, that reaches into the present stage and ended no longer ago than a go may
// be old; or an override. That and the waivers are kept in the note.
func Sign(ctx context.Context, s *Stores, r report.Report, o SignOptions) (holdover.SignOff, error) {
	d := holdover.SignOff{Pod: s.Name, Digest: r.Digest, Verdict: string(r.Verdict), Decision: o.Decision, As: strings.TrimSpace(o.As), Note: strings.TrimSpace(o.Note), From: r.From, To: r.To}
	fence, err := s.MySQL.Fence(ctx)
	if err != nil && !errors.Is(err, holdover.ErrNoFence) {
		return d, err
	}
	d.Stage, d.Epoch = fence.Stage, fence.Epoch
	read := r
	if o.Read != nil {
		read = *o.Read
	}
	goes := o.Decision == mysqlpool.DecisionGo && o.Override == ""
	no := func(format string, args ...any) (holdover.SignOff, error) {
		return d, fmt.Errorf("pod %s: %w: %s", s.Name, ErrNotSigned, fmt.Sprintf(format, args...))
	}
	switch {
	case d.Note == "":
		return d, &holdover.InvalidError{Field: "sign-off note", Problem: "is missing: say why"}
	case !slices.Contains(r.Pods, s.Name):
		return no("the report is about %s", strings.Join(r.Pods, ", "))
	case o.Digest != "" && o.Digest != r.Digest:
		return no("the data has changed since that report was made: its digest was %s and is %s; read the new one", clip(o.Digest), r.Digest)
	case read.Digest != r.Digest:
		return no("the data has changed since that report was made, or the file was edited, or it was made with a baseline that is not given here: the digest in the file is %s, and that of its period in MySQL is now %s; make the report again and read that", clip(read.Digest), r.Digest)
	case read.Verdict != r.Verdict && (read.Verdict == report.Pass || r.Verdict == report.Fail):
		return no("the file says %s and its data says %s: the file was edited; make the report again and read that", clip(string(read.Verdict)), r.Verdict)
	case goes && r.Verdict != report.Pass:
		return no("the report's verdict is %s: %s; a go all the same takes an override with its reason", r.Verdict, failing(r, false))
	case goes && read.Verdict != report.Pass:
		return no("the verdict of the report that was read is %s: %s; a go all the same takes an override with its reason", clip(string(read.Verdict)), failing(read, false))
	case goes && failing(r, true) != "":
		return no("gates that are not passed were waived: %s; a go all the same takes an override with its reason", failing(r, true))
	case goes && failing(read, true) != "": // who lives was known when it was read
		return no("gates that were not passed in the report that was read were waived: %s; a go all the same takes an override with its reason", clip(failing(read, true)))
	case goes && r.To.Before(fence.At):
		return no("the report ends at %s, before the pod came to %s at %s; make one that ends later (without an end: at the last full minute), or give an override with its reason", r.To.Format(time.RFC3339), fence.Stage, fence.At.UTC().Format(time.RFC3339))
	}
	if old := time.Since(r.To); goes && old > s.rules.SignoffMaxAge {
		return no("the report ended %s ago, at %s, and rollout.signoff_max_age is %s; make one that ends later. With an override it is recorded, and no step is taken on it",
			old.Round(time.Second), r.To.Format(time.RFC3339), s.rules.SignoffMaxAge)
	}
	if waived := r.Waived(); waived != "" {
		d.Note += " [waived: " + waived + "]"
	}
	if o.Override != "" {
		d.Note += " [override: " + strings.TrimSpace(o.Override) + "]"
	}
	if err := s.MySQL.SignOff(ctx, d); err != nil {
		return d, err
	}
	if kept, found, err := s.MySQL.LastSignOff(ctx, d.Epoch); err == nil && found && kept.As == d.As {
		d = kept // with its time
	}
	return d, nil
}

// failing names the gates that are not passed: those that were waived, or those
// that the verdict is made of, which a waiver of a failure is too.
func failing(r report.Report, waived bool) string {
	var why []string
	for _, g := range r.Gates {
		if !g.OK && (g.Waived == waived || !waived && g.Verdict == report.Fail) {
			why = append(why, g.Name+" ("+g.Reason+")")
		}
	}
	if len(why) == 0 && !waived && r.Verdict == report.NoVerdict {
		return "every gate was waived"
	}
	return strings.Join(why, "; ")
}
