package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdover/compare"
)

// member is an instance of a pod, or the pod itself.
type member struct{ Pod, Instance string }

func (m member) String() string {
	if m.Instance == "" {
		return m.Pod
	}
	return m.Instance + " of " + m.Pod
}

// minute is what a member counted in rollups that began in one minute. A report of
// weeks keeps one for each minute of each instance: it is small.
type minute struct{ seconds, eligible, compared uint32 }

// thinStretch is a stretch in which operations were seen, and too few of them
// compared.
type thinStretch struct {
	Of                 member
	From, To           time.Time
	Eligible, Compared uint64
}

func (t thinStretch) length() time.Duration { return t.To.Sub(t.From) }

// note keeps what stretches and lost mirrors are found by, of a rollup with so many
// operations.
func (p *Pulse) note(r compare.Rollup, eligible, compared uint64) {
	for _, c := range r.Cells {
		if slices.ContainsFunc(c.Kinds, func(t compare.Tally) bool { return t.Kind == compare.KindMirrorLost && t.Count > 0 }) {
			if p.lost == nil {
				p.lost = map[string]time.Time{}
			}
			p.lost[r.Pod] = later(p.lost[r.Pod], r.To.UTC())
		}
	}
	if eligible == 0 {
		return
	}
	if p.minutes == nil {
		p.minutes = map[member]map[int64]minute{}
	}
	at := r.From.Unix() / 60
	for _, of := range []member{{Pod: r.Pod}, {r.Pod, r.Instance}} {
		if p.minutes[of] == nil {
			p.minutes[of] = map[int64]minute{}
		}
		m := p.minutes[of][at]
		m.seconds = max(m.seconds, atMost32(max(0, r.To.Unix()-60*at)))
		m.eligible = atMost32(int64(m.eligible) + int64(eligible))
		m.compared = atMost32(int64(m.compared) + int64(compared))
		p.minutes[of][at] = m
	}
}

func atMost32(n int64) uint32 { return uint32(min(n, 1<<32-1)) }

// thin are the longest thin stretches of these pods and of their instances, the
// longest first. Minutes without operations neither begin nor end one.
func (p *Pulse) thin(pods []string, limits Limits) (all []thinStretch) {
	for of, minutes := range p.minutes {
		if !slices.Contains(pods, of.Pod) {
			continue
		}
		var open, longest thinStretch
		for _, at := range slices.Sorted(maps.Keys(minutes)) {
			m := minutes[at]
			if share(uint64(m.compared), uint64(m.eligible)) >= limits.ThinCoverage {
				open = thinStretch{}
				continue
			}
			begin := time.Unix(60*at, 0).UTC()
			if open.Eligible == 0 {
				open = thinStretch{Of: of, From: begin}
			}
			open.To = later(open.To, begin.Add(time.Duration(m.seconds)*time.Second))
			open.Eligible += uint64(m.eligible)
			open.Compared += uint64(m.compared)
			if open.Eligible >= limits.MinOperation && open.length() > longest.length() {
				longest = open
			}
		}
		if longest.Eligible > 0 {
			all = append(all, longest)
		}
	}
	slices.SortFunc(all, func(a, b thinStretch) int {
		return cmp.Or(cmp.Compare(b.length(), a.length()), cmp.Compare(a.Of.Pod, b.Of.Pod), cmp.Compare(a.Of.Instance, b.Of.Instance))
	})
	return all
}

// thinGate: ten minutes in which nothing could be compared are a hole, though a
// good week around them has coverage enough.
func (r *Report) thinGate(s *sum) Gate {
	g := Gate{Name: "coverage:stretch", Unit: unitSeconds, Threshold: r.Limits.MaxThin.Seconds(), N: r.Coverage.Eligible, Verdict: Pass,
		Reason: fmt.Sprintf("there is no stretch with operations of which fewer than %s were compared", percent(r.Limits.ThinCoverage))}
	var long []string
	for i, t := range s.thin {
		text := fmt.Sprintf("%s from %s to %s (%d of %d operations of %s)", seconds(t.length().Seconds()), stamp(t.From), stamp(t.To), t.Compared, t.Eligible, t.Of)
		if i == 0 {
			g.Value, g.N = t.length().Seconds(), t.Eligible
			g.Reason = fmt.Sprintf("the longest stretch in which fewer than %s were compared is %s", percent(r.Limits.ThinCoverage), text)
		}
		if t.length() > r.Limits.MaxThin {
			g.Verdict = NoVerdict
			long = append(long, text)
		}
	}
	switch {
	case r.Coverage.Eligible+r.Coverage.Bypassed == 0:
		g.Verdict, g.Reason = NoVerdict, "nothing was compared"
	case len(long) > maxThinNamed:
		g.Reason = fmt.Sprintf("%s; and %d more", strings.Join(long[:maxThinNamed], "; "), len(long)-maxThinNamed)
	case len(long) > 0:
		g.Reason = strings.Join(long, "; ")
	}
	if len(long) > 0 {
		g.Reason = fmt.Sprintf("fewer than %s were compared for longer than %s: ", percent(r.Limits.ThinCoverage), seconds(r.Limits.MaxThin.Seconds())) + g.Reason
	}
	return g
}

// maxThinNamed is how many stretches a gate names.
const maxThinNamed = 5
