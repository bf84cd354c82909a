package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdover"
	"holdover/compare"
	"holdover/compare/report"
	"holdover/killswitch"
)

// ReportOptions say what a report is about.
type ReportOptions struct {
	// Since begins the period, Until ends it. Files may be read to their end: the
	// zero Until.
	Since, Until time.Time
	// Live: the period ends now, so the instances that live now have to be
	// reporting; false: who lived in it is told by what was heard of them before,
	// in and after it.
	Live bool
	// Baseline and Noise are earlier times to compare with; nil: none.
	Baseline, Noise *report.Baseline
	// Limits are what the gates demand.
	Limits report.Limits
}

// Report is the divergence report of pods, over all instances, from what their
// MySQLs keep. It needs no instance, and no Redis.
func Report(ctx context.Context, c Config, pods []*Stores, o ReportOptions) (report.Report, error) {
	in := report.Input{Source: report.SourceMySQL, Pulse: new(report.Pulse), Since: o.Since, Until: o.Until, Baseline: o.Baseline, Noise: o.Noise, Limits: o.Limits}
	in.Past = !o.Live
	in.Instances = map[string][]holdover.Instance{}
	for _, s := range pods {
		in.Pods = append(in.Pods, s.Name)
		if err := s.reported(ctx, &in); err != nil {
			return report.Report{}, fmt.Errorf("pod %s: the report needs its MySQL (or --events FILE): %w", s.Name, Hinted(err))
		}
		s.alive(ctx, c, &in)
		s.unplanted(ctx, c, &in)
	}
	return report.Build(in)
}

// longestRollup: periods are no longer (validate.go), so none that touches a
// report's period begins earlier.
const longestRollup = time.Hour

// reported adds what the pod's MySQL keeps of the period.
func (s *Stores) reported(ctx context.Context, in *report.Input) error {
	var hours hourly
	around := heard{since: in.Since, until: in.Until}
	err := s.MySQL.Comparisons(ctx, in.Since.Add(-longestRollup), in.Until, func(c holdover.Comparison) error {
		r, err := rollupOf(c)
		if err != nil || around.add(r.Rollup) {
			return err
		}
		if by := r.To.Sub(r.At); !r.At.IsZero() && by > 0 {
			in.Ahead = append(in.Ahead, report.Ahead{Pod: r.Pod, Instance: r.Instance, Run: r.Run, From: r.From, To: r.To, By: by})
		}
		in.Pulse.Add(r.Rollup)
		return hours.add(r.Rollup)
	})
	if err != nil {
		return err
	}
	rollups, err := hours.rollups()
	if err != nil {
		return err
	}
	in.Rollups = append(in.Rollups, rollups...)
	if err := s.ahead(ctx, in); err != nil {
		return err
	}
	if in.Past {
		if err := s.heardSince(ctx, in.Until, in.Read, &around); err != nil {
			return err
		}
		in.Heard = append(in.Heard, around.all()...)
	}
	fences, err := s.MySQL.FencesSince(ctx, in.Since)
	if err != nil {
		return err
	}
	for _, f := range fences {
		if f.At.Before(in.Until) {
			in.Fences = append(in.Fences, f)
		}
	}
	if err := s.drilled(ctx, in, fences); err != nil {
		return err
	}
	verified, err := s.MySQL.VerifiedSince(ctx, in.Since)
	if err != nil {
		return err
	}
	in.Verified = append(in.Verified, verified...)
	if err := s.repaired(ctx, in); err != nil {
		return err
	}
	signed, err := s.MySQL.SignOffs(ctx, in.Since)
	in.SignOffs = append(in.SignOffs, signed...)
	return err
}

// heardSince listens after a period that ended in the past: right after it, and in the
// last hour, in which who lives now tells when it was started.
func (s *Stores) heardSince(ctx context.Context, until, now time.Time, around *heard) error {
	note := func(c holdover.Comparison) error {
		r, err := rollupOf(c)
		if err == nil {
			around.add(r.Rollup)
		}
		return err
	}
	after, recent := until.Add(hearing), now.Add(-hearing)
	if recent.After(after) {
		if err := s.MySQL.Comparisons(ctx, until, after, note); err != nil {
			return err
		}
		until = recent
	}
	if !now.After(until) {
		return nil
	}
	return s.MySQL.Comparisons(ctx, until, now, note)
}

// ahead adds which rollups were written by clocks that are ahead: those that begin
// after the period's end are not in it, and its reader has to know.
func (s *Stores) ahead(ctx context.Context, in *report.Input) error {
	now, all, err := s.MySQL.ComparisonsAhead(ctx)
	if err != nil {
		return err
	}
	if in.Read.IsZero() || now.Before(in.Read) { // of several pods
		in.Read = now
	}
	for _, c := range all {
		if !c.From.Before(in.Until) {
			in.Rollups = append(in.Rollups, compare.Rollup{Pod: c.Pod, Instance: c.Instance, Run: c.Run, Seq: c.Seq, From: c.From, To: c.To})
		}
	}
	return nil
}

// drilled adds the rehearsals of the kill switch that wrote these fences, with their
// outcomes where these were kept.
func (s *Stores) drilled(ctx context.Context, in *report.Input, fences []holdover.Fence) error {
	kept, err := s.MySQL.DrillsSince(ctx, in.Since)
	if err != nil {
		return err
	}
	for _, f := range fences {
		if !f.Latched || !killswitch.IsDrill(f) {
			continue
		}
		drill := holdover.Drill{Pod: f.Pod, Epoch: f.Epoch}
		if i := slices.IndexFunc(kept, func(d holdover.Drill) bool { return d.Pod == f.Pod && d.Epoch == f.Epoch }); i >= 0 {
			drill = kept[i]
		}
		in.Drills = append(in.Drills, drill)
	}
	return nil
}

// maxRepaired bounds the repairs that a report names, by who did them and why.
const maxRepaired = 1000

// repaired adds the repairs and rebuilds of the period: they change what the
// counts are about.
func (s *Stores) repaired(ctx context.Context, in *report.Input) error {
	all, err := s.MySQL.RepairedBetween(ctx, in.Since, in.Until, maxRepaired)
	if err != nil {
		return err
	}
	for _, r := range all {
		what, text := report.WhatRepair, fmt.Sprintf("%d changes in %s (%s): %s", r.Begun, r.Store, r.Actions, r.Reason)
		if strings.Contains(r.Actions, rebuildAction) {
			what, text = report.WhatRebuild, "Redis had lost its data, or had older data, and was filled from MySQL; "+text
		}
		if left := r.Begun - r.Done; left > 0 {
			text += fmt.Sprintf("; %d of them were left, failed or are not known", left)
		}
		in.Incidents = append(in.Incidents, report.Incident{Pod: r.Pod, What: what, From: r.First.UTC(), To: r.Last.UTC(), By: r.By, Text: text})
	}
	return nil
}

// unplanted adds why divergences are not planted here, as far as the configuration and
// the reserved shop tell.
func (s *Stores) unplanted(ctx context.Context, c Config, in *report.Input) {
	say := func(format string, args ...any) {
		in.Unplanted = append(in.Unplanted, fmt.Sprintf("pod %s: ", s.Name)+fmt.Sprintf(format, args...))
	}
	if s.reserved == 0 {
		say("%v", ErrNoReservedShop)
		return
	}
	if c.Compare.SelftestEvery < 0 {
		say("compare.selftest_every is %s, so that serve plants nothing", c.Compare.SelftestEvery)
	}
	for _, w := range s.foreignStock(ctx) {
		say("%s", w.Text)
		in.Notes = append(in.Notes, fmt.Sprintf("pod %s: %s", s.Name, w.Text))
	}
}

// alive adds who lives now, or a note that this can't be told.
func (s *Stores) alive(ctx context.Context, c Config, in *report.Input) {
	if fence, err := s.MySQL.Fence(ctx); err == nil && fence.Stage == holdover.StageMySQLOnly {
		in.Notes = append(in.Notes, fmt.Sprintf("pod %s: which instances live is not known in mysql-only", s.Name))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	live, err := s.Redis.Instances(ctx, c.InstanceMaxAge())
	if err != nil {
		in.Notes = append(in.Notes, fmt.Sprintf("pod %s: which instances live is not known: %v", s.Name, err))
		return
	}
	if live == nil {
		live = []holdover.Instance{}
	}
	in.Instances[s.Name] = live
}

// ReportOffline is the report of event files, spooled records and folders of
// them, of these pods or of all that are there: it needs no store. Who agreed on
// what, verifications and sign-offs are not in them.
func ReportOffline(paths, pods []string, o ReportOptions) (report.Report, error) {
	files, err := eventFiles(paths)
	if err != nil {
		return report.Report{}, err
	}
	index, err := indexEvents(files)
	if err != nil {
		return report.Report{}, err
	}
	var hours hourly
	pulse := new(report.Pulse)
	around := heard{since: o.Since, until: o.Until}
	err = index.each(func(r compare.Rollup) error {
		if len(pods) > 0 && !slices.Contains(pods, r.Pod) || around.add(r) {
			return nil
		}
		pulse.Add(r)
		return hours.add(r)
	})
	if err != nil {
		return report.Report{}, err
	}
	rollups, err := hours.rollups()
	if err != nil {
		return report.Report{}, err
	}
	in := report.Input{Source: report.SourceFiles, Pods: pods, Since: o.Since, Until: o.Until, Rollups: rollups, Pulse: pulse, Notes: index.notes, Baseline: o.Baseline, Noise: o.Noise, Limits: o.Limits}
	if in.Past = !o.Until.IsZero(); in.Past {
		in.Heard = around.all()
	}
	in.Notes = append(in.Notes, "read from files: changes of stage, kills, verifications and sign-offs are not in them")
	return report.Build(in)
}

// The formats of a report.
const (
	FormatJSON, FormatHTML, FormatMarkdown, FormatText = "json", "html", "md", "text"
)

// WriteReport writes r in a format.
func WriteReport(w io.Writer, r report.Report, format string) error {
	switch format {
	case FormatJSON:
		return r.WriteJSON(w)
	case FormatHTML:
		return r.WriteHTML(w)
	case FormatMarkdown:
		return r.WriteMarkdown(w)
	case FormatText:
		return r.WriteText(w)
	}
	return &holdover.InvalidError{Field: "format", Value: clip(format), Problem: "must be json, html, md or text"}
}

// WriteReportFile writes r in a format to a new file at path, or over the one there.
func WriteReportFile(path string, r report.Report, format string) error {
	file, err := os.Create(path)
	if err != nil {
		return &holdover.InvalidError{Field: "report file", Value: path, Problem: "can't be written: " + err.Error()}
	}
	if err := errors.Join(WriteReport(file, r, format), file.Close()); err != nil {
		return fmt.Errorf("report %s: %w", path, err)
	}
	return nil
}

// arriving is how long after the end of a minute its counts may still be on their
// way into MySQL: a report that ended there would be another one a moment later.
const arriving = 10 * time.Second

// ParsePeriod reads the two ends of a report's period: RFC 3339 times, dates
// (UTC), or durations back from the last full minute whose counts have arrived,
// which may be in days and weeks (7d, 2w). An empty until is that minute too, so
// that what is asked twice within a minute is answered the same.
func ParsePeriod(since, until string, now time.Time) (from, to time.Time, err error) {
	minute := now.UTC().Add(-arriving).Truncate(time.Minute)
	bad := func(field, value, problem string) (time.Time, time.Time, error) {
		return from, to, &holdover.InvalidError{Field: field, Value: clip(value), Problem: problem}
	}
	if from, err = parseMoment(since, minute); err != nil {
		return bad("since", since, err.Error())
	}
	if !from.Before(minute) {
		return bad("since", since, "must be before the last full minute, "+minute.Format(time.RFC3339))
	}
	if until == "" {
		return from, minute, nil
	}
	if to, err = parseMoment(until, minute); err != nil {
		return bad("until", until, err.Error())
	}
	if !to.After(from) {
		return bad("until", until, "must be after since")
	}
	return from, to, nil
}

var errMoment = errors.New("must be a duration back from now like 90m, 24h, 7d or 2w, a date, or an RFC 3339 time")

func parseMoment(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	for unit, length := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if number, is := strings.CutSuffix(text, unit); is {
			n, err := strconv.ParseUint(number, 10, 16)
			if err != nil || n == 0 || n > 10_000 {
				return time.Time{}, errMoment
			}
			return now.Add(-time.Duration(n) * length).UTC(), nil
		}
	}
	back, err := time.ParseDuration(text)
	if err != nil || back <= 0 {
		return time.Time{}, errMoment
	}
	return now.Add(-back).UTC(), nil
}
