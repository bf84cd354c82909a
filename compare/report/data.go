package report

import (
	"fmt"
	"slices"
	"time"

	"holdover/compare"
)

// dataOf is what of the period was counted by anybody. sorted is in the order of
// latest.
func dataOf(sorted []compare.Rollup, since, until time.Time) Data {
	var all []stretch
	var last compare.Rollup
	for _, r := range sorted {
		s := stretch{later(r.From, since), r.To}
		if r.Run == last.Run && r.Seq == last.Seq+1 && r.Lost == 0 && last.To.Before(s.from) {
			s.from = later(last.To, since) // nothing is missing between the two
		}
		if s.to.After(until) {
			s.to = until
		}
		all = append(all, s)
		last = r
	}
	slices.SortFunc(all, func(a, b stretch) int { return a.from.Compare(b.from) })
	var d Data
	var sum time.Duration
	for _, s := range all {
		if d.From.IsZero() || s.from.Before(d.From) {
			d.From = s.from
		}
		s.from = later(s.from, d.To)
		sum += max(s.to.Sub(s.from), 0)
		d.To = later(d.To, s.to)
	}
	d.Seconds = sum.Seconds()
	if length := until.Sub(since); length > 0 {
		d.Share = min(1, float64(sum)/float64(length))
	}
	return d
}

// period says what was asked for and what of it there is.
func (r Report) period() string {
	if r.To.IsZero() {
		return "nothing was observed"
	}
	text := fmt.Sprintf("%s to %s (%s)", stamp(r.From), stamp(r.To), long(r.To.Sub(r.From)))
	switch {
	case r.Data.From.IsZero():
		text += "; nothing was counted in it"
	case r.Data.Share >= wholePeriod:
		text += "; counted all the time"
	default:
		text = fmt.Sprintf("asked: %s; data: %s, %s of it, from %s to %s",
			text, long(time.Duration(r.Data.Seconds*float64(time.Second))), percent(r.Data.Share), stamp(r.Data.From), stamp(r.Data.To))
	}
	return text
}

// wholePeriod is the share from which on a period counts as whole: the last minute
// is on its way.
const wholePeriod = 0.99

// long writes a length of time as a person says it.
func long(d time.Duration) string {
	d = d.Round(time.Second)
	days, rest := int(d/(24*time.Hour)), d%(24*time.Hour)
	hours, rest := int(rest/time.Hour), rest%time.Hour
	minutes, secs := int(rest/time.Minute), int(rest%time.Minute/time.Second)
	switch {
	case days > 0 && hours == 0:
		return counted(days, "day")
	case days > 0:
		return fmt.Sprintf("%s %d h", counted(days, "day"), hours)
	case hours > 0 && minutes == 0:
		return fmt.Sprintf("%d h", hours)
	case hours > 0:
		return fmt.Sprintf("%d h %d min", hours, minutes)
	case minutes > 0 && secs == 0:
		return fmt.Sprintf("%d min", minutes)
	case minutes > 0:
		return fmt.Sprintf("%d min %d s", minutes, secs)
	default:
		return fmt.Sprintf("%d s", secs)
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// drawn is the part of the period that a drawing shows: where something was
// counted or changed, with a little room on both sides.
func (r Report) drawn() (from, to time.Time) {
	from, to = r.Data.From, r.Data.To
	for _, c := range r.Timeline {
		if c.Before {
			continue
		}
		if from.IsZero() || c.At.Before(from) {
			from = c.At
		}
		to = later(to, c.At)
	}
	if from.IsZero() {
		return r.From, r.To
	}
	room := to.Sub(from) / 20
	if from = from.Add(-room); from.Before(r.From) {
		from = r.From
	}
	if to = to.Add(room); to.After(r.To) {
		to = r.To
	}
	return from, to
}
