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
	why := &dualwrite.Reason{Code: codeNoSignoff, Do: fmt.Sprintf("holdover report --pod %s --since 7d, then holdover report sign --pod %s --as NAME --decision go --note TEXT", s.Name, s.Name)}
	switch {
	case !found:
		why.Text = fmt.Sprintf("nobody has signed a report of %s at epoch %d", agreed.Stage, agreed.Epoch)
	case last.Decision != mysqlpool.DecisionGo:
		why.Text = fmt.Sprintf("%s said %s at %s: %s", last.As, last.Decision, last.At.UTC().Format(time.RFC3339), last.Note)
	default:
		spent, err := s.spent(ctx, agreed, last)
		if err != nil || spent == "" {
			return nil, err
		}
		why.Text = fmt.Sprintf("the go of %s %s (it was signed at %s: %s)", last.As, spent, last.At.UTC().Format(time.RFC3339), last.Note)
		why.Number = time.Since(seenUntil(last)).Seconds()
	}
	return why, nil
}

// spent is why no step is taken on the newest decision at the agreement's epoch,
// which is a go, an override or not; empty: one is.
func (s *Stores) spent(ctx context.Context, agreed holdover.Fence, d holdover.SignOff) (string, error) {
	if age := time.Since(seenUntil(d)); age > s.rules.SignoffMaxAge { // by MySQL's clock: a little off does no harm
		return fmt.Sprintf("is about a report that ended %s ago, at %s, and that may be %s", age.Round(time.Second), d.To.UTC().Format(time.RFC3339), s.rules.SignoffMaxAge), nil
	}
	blind, err := s.blind(ctx, agreed, seenUntil(d))
	if blind != "" {
		blind = "is about a report that says nothing of the present: " + blind
	}
	return blind, err
}

// blind is why a report that ended then says nothing of what the pod's instances
// agree on now; empty: it does. What was seen of a stage before it was left and
// entered again is not of this time in it.
func (s *Stores) blind(ctx context.Context, agreed holdover.Fence, ended time.Time) (string, error) {
	since := fmt.Sprintf("the pod came to %s at epoch %d at %s", agreed.Stage, agreed.Epoch, agreed.At.UTC().Format(time.RFC3339))
	if !ended.After(agreed.At) {
		return fmt.Sprintf("it ends at %s, before %s", ended.UTC().Format(time.RFC3339), since), nil
	}
	if !agreed.Stage.Dual() { // nothing is compared there, and no step waits for it
		return "", nil
	}
	compared, err := s.MySQL.Compared(ctx, agreed.Stage, agreed.At, ended)
	if err != nil || compared {
		return "", err
	}
	return fmt.Sprintf("it ends at %s, %s, and nothing that was compared there since is in it (of counts that began before, nobody knows)", ended.UTC().Format(time.RFC3339), since), nil
}

// Spent is why a decision opens no step any more, for a list of all; empty: it is
// the one that counts, or a no-go, or nothing was agreed on yet.
func (s *Stores) Spent(ctx context.Context, all []holdover.SignOff, i int) (string, error) {
	d := all[i]
	if d.Decision != mysqlpool.DecisionGo {
		return "", nil
	}
	agreed, err := s.MySQL.Fence(ctx)
	switch {
	case errors.Is(err, holdover.ErrNoFence):
		return "", nil
	case err != nil:
		return "", err
	case agreed.Epoch != d.Epoch:
		return fmt.Sprintf("the pod is in %s at epoch %d since %s", agreed.Stage, agreed.Epoch, agreed.At.UTC().Format(time.RFC3339)), nil
	}
	for _, later := range all[i+1:] {
		if later.Epoch == d.Epoch {
			return fmt.Sprintf("%s decided again at %s", later.As, later.At.UTC().Format(time.RFC3339)), nil
		}
	}
	spent, err := s.spent(ctx, agreed, d)
	if spent != "" {
		spent = "it " + spent
	}
	return spent, err
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
// it, and are those that it was made with. Its period has ended: who lived in it is told
// by what was heard of them.
func Remake(ctx context.Context, c Config, pods []*Stores, read report.Report, baseline, noise *report.Baseline) (report.Report, error) {
	return Report(ctx, c, pods, ReportOptions{Since: read.From, Until: read.To, Baseline: baseline, Noise: noise,
		Limits: report.Limits{MustSee: read.Limits.MustSee, Waived: read.Limits.Waived}})
}

// Sign records a decision about a report of the pod, with the pod's stage and
// epoch. A go needs a report that passes, in which no gate was waived that does
// not, that reaches into the present epoch, in which something was compared by
// then, and ended no longer ago than a go may be old; or an override. That, the
// waivers, and what it was compared with are kept in the note. On a go about
// another time no step is taken, override or not.
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
	case otherFlags(read, r) != "":
		return no("%s", otherFlags(read, r))
	case read.Digest != r.Digest:
		return no("the data has changed since that report was made, or the file was edited: the digest in the file is %s, and that of its period in MySQL is now %s; make the report again and read that", clip(read.Digest), r.Digest)
	case read.Verdict != r.Verdict && (read.Verdict == report.Pass || r.Verdict == report.Fail):
		return no("the file says %s and its data says %s: the file was edited, or what is known of the instances has changed; make the report again and read that: %s", clip(string(read.Verdict)), r.Verdict, failing(r, false))
	case goes && r.Verdict != report.Pass:
		return no("the report's verdict is %s: %s; a go all the same takes an override with its reason", r.Verdict, failing(r, false))
	case goes && read.Verdict != report.Pass:
		return no("the verdict of the report that was read is %s: %s; a go all the same takes an override with its reason", clip(string(read.Verdict)), failing(read, false))
	case goes && failing(r, true) != "":
		return no("gates that are not passed were waived: %s; a go all the same takes an override with its reason", failing(r, true))
	case goes && failing(read, true) != "": // who lives was known when it was read
		return no("gates that were not passed in the report that was read were waived: %s; a go all the same takes an override with its reason", clip(failing(read, true)))
	}
	undemanded := strings.Join(r.Limits.Undemanded(), ", ")
	if goes && undemanded != "" {
		return no("the report did not demand to have seen %s (--must-see); a go all the same takes an override with its reason", undemanded)
	}
	if goes && fence.Epoch > 0 {
		blind, err := s.blind(ctx, fence, r.To)
		if err != nil {
			return d, err
		}
		if blind != "" {
			return no("the report says nothing of the present: %s; make one that ends later (without an end: at the last full minute). With an override it is recorded, and no step is taken on it", blind)
		}
	}
	if old := time.Since(r.To); goes && old > s.rules.SignoffMaxAge {
		return no("the report ended %s ago, at %s, and rollout.signoff_max_age is %s; make one that ends later. With an override it is recorded, and no step is taken on it",
			old.Round(time.Second), r.To.Format(time.RFC3339), s.rules.SignoffMaxAge)
	}
	if waived := r.Waived(); waived != "" {
		d.Note += " [waived: " + waived + "]"
	}
	if undemanded != "" {
		d.Note += " [not demanded: " + undemanded + "]"
	}
	for _, flag := range comparedWith {
		if digest := flag.of(r); digest != "" {
			d.Note += fmt.Sprintf(" [%s: %.12s]", flag.name, digest)
		}
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

// comparedWith are the flags that give other reports, which a digest is not of.
var comparedWith = []struct {
	name string
	of   func(report.Report) (digest string)
}{
	{"baseline", func(r report.Report) string { return r.Latency.Baseline }},
	{"noise", func(r report.Report) string {
		if r.Noise == nil {
			return ""
		}
		return r.Noise.Digest
	}},
}

// otherFlags names what the report that was read was compared with, and the one that
// was made of it again was not.
func otherFlags(read, again report.Report) string {
	for _, flag := range comparedWith {
		was, is := flag.of(read), flag.of(again)
		switch {
		case was == is:
		case is == "":
			return fmt.Sprintf("the report that was read was made with --%s, which is missing here: give the same --%s FILE, whose digest is %s", flag.name, flag.name, clip(was))
		case was == "":
			return fmt.Sprintf("the report that was read was made without --%s: leave it out here too", flag.name)
		default:
			return fmt.Sprintf("the report that was read was made with another --%s: the digest of its FILE is %s, and that of the one given here is %s", flag.name, clip(was), clip(is))
		}
	}
	return ""
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
