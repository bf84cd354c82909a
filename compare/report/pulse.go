package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare"
)

// Pulse is what the instances of each pod counted together, minute by minute: what
// the sum of an hour can't tell, that for ten minutes of it a store did not answer
// or nothing was compared. The zero value is empty. It is for one goroutine.
type Pulse struct {
	pods    map[string]map[time.Time]*Beat
	minutes map[member]map[int64]minute // of pods and of instances, by the minute of Unix time
	lost    map[string]time.Time        // by pod, the end of the last rollup with a lost mirror
}

// Beat is one period of one pod, of all rollups that began in one minute.
type Beat struct {
	From, To           time.Time
	Eligible, Compared uint64
	RedisAway          uint64 // operations without an answer of Redis: it failed, or nobody knows
	MySQLAway          uint64
	// Redis and MySQL are how often each store gave which answer; nil where both
	// always answered.
	Redis, MySQL map[string]uint64
	// RedisSeen and MySQLSeen are when the first and the last sample of an operation
	// without an answer was observed: a few of all, to the second.
	RedisSeen, MySQLSeen Seen
}

// Seen is when something was seen first and last; zero: never.
type Seen struct{ First, Last time.Time }

func (s *Seen) add(o Seen) {
	if o.First.IsZero() {
		return
	}
	s.First = earlier(o.First, s.First)
	s.Last = later(s.Last, o.Last)
}

// Add takes one rollup, as it was written: not a sum of several.
func (p *Pulse) Add(r compare.Rollup) {
	b := Beat{From: r.From.UTC(), To: r.To.UTC(), Eligible: r.Bypassed}
	for _, s := range r.Strata {
		switch s.Name {
		case WhatRedisAway:
			b.RedisAway = s.Eligible
		case WhatMySQLAway:
			b.MySQLAway = s.Eligible
		}
	}
	for _, c := range r.Cells {
		b.Eligible += c.Eligible
		b.Compared += c.Compared
	}
	p.note(r, b.Eligible, b.Compared)
	if b.RedisAway+b.MySQLAway > 0 {
		b.Redis, b.MySQL = map[string]uint64{}, map[string]uint64{}
		for _, c := range r.Cells {
			for _, o := range c.Outcomes {
				b.Redis[o.Redis] += o.Count
				b.MySQL[o.MySQL] += o.Count
			}
		}
		for _, e := range r.Samples {
			at := Seen{e.At.UTC(), e.At.UTC()}
			if e.Kind != compare.KindNotComparable {
				continue
			}
			if unanswered(e.Redis) {
				b.RedisSeen.add(at)
			}
			if unanswered(e.MySQL) {
				b.MySQLSeen.add(at)
			}
		}
	}
	if p.pods == nil {
		p.pods = map[string]map[time.Time]*Beat{}
	}
	if p.pods[r.Pod] == nil {
		p.pods[r.Pod] = map[time.Time]*Beat{}
	}
	at := b.From.Truncate(time.Minute)
	if into := p.pods[r.Pod][at]; into != nil {
		into.add(b)
	} else {
		p.pods[r.Pod][at] = &b
	}
}

func (b *Beat) add(o Beat) {
	if o.From.Before(b.From) {
		b.From = o.From
	}
	b.To = later(b.To, o.To)
	b.Eligible += o.Eligible
	b.Compared += o.Compared
	b.RedisAway += o.RedisAway
	b.MySQLAway += o.MySQLAway
	b.Redis, b.MySQL = merged(b.Redis, o.Redis), merged(b.MySQL, o.MySQL)
	b.RedisSeen.add(o.RedisSeen)
	b.MySQLSeen.add(o.MySQLSeen)
}

func merged(into, more map[string]uint64) map[string]uint64 {
	if into == nil {
		return more
	}
	for name, n := range more {
		into[name] += n
	}
	return into
}

// Beats are those of one pod, in the order of time.
func (p *Pulse) Beats(pod string) []Beat {
	var all []Beat
	for _, at := range slices.SortedFunc(maps.Keys(p.pods[pod]), time.Time.Compare) {
		all = append(all, *p.pods[pod][at])
	}
	return all
}

// A store counts as away when it left this share of the operations of a beat without an
// answer, or as many as come in this time: else a beat of an hour would hide minutes.
// What is rarer is in the answers and in the coverage. Two such beats with no more than
// the bridge between them are one outage.
const (
	awayShare  = 0.05
	awayLength = 30 * time.Second
	awayBridge = 2 * time.Minute
)

// maxAway bounds the outages of one store of one pod that are named one by one,
// the longest; the rest are added up.
const maxAway = 50

// outage is a stretch of beats in which one store was away.
type outage struct {
	stretch
	of, away uint64
	answers  map[string]uint64
	seen     Seen
	about    time.Duration // how long the operations without an answer would take, one after the other at the mean rate
}

func (o *outage) add(more outage) {
	o.from, o.to = earlier(o.from, more.from), later(o.to, more.to)
	o.of, o.away, o.about = o.of+more.of, o.away+more.away, o.about+more.about
	o.answers = merged(o.answers, more.answers)
	o.seen.add(more.seen)
}

// away are the outages of one pod's stores.
func (p *Pulse) away(pod string) (all []Incident) {
	beats := p.Beats(pod)
	for _, store := range []struct {
		what string
		name holdover.Store
		of   func(Beat) (away uint64, answers map[string]uint64, seen Seen)
	}{
		{WhatMySQLAway, holdover.StoreMySQL, func(b Beat) (uint64, map[string]uint64, Seen) { return b.MySQLAway, b.MySQL, b.MySQLSeen }},
		{WhatRedisAway, holdover.StoreRedis, func(b Beat) (uint64, map[string]uint64, Seen) { return b.RedisAway, b.Redis, b.RedisSeen }},
	} {
		var outages []outage
		for _, b := range beats {
			n, answers, seen := store.of(b)
			length := max(b.To.Sub(b.From), time.Minute)
			if n == 0 || float64(n) < min(awayShare, float64(awayLength)/float64(length))*float64(b.Eligible) {
				continue
			}
			one := outage{stretch: stretch{b.From, b.To}, of: b.Eligible, away: n, answers: maps.Clone(answers), seen: seen,
				about: time.Duration(float64(b.To.Sub(b.From)) * min(1, share(n, b.Eligible)))}
			if last := len(outages) - 1; last >= 0 && b.From.Sub(outages[last].to) <= awayBridge {
				outages[last].add(one)
			} else {
				outages = append(outages, one)
			}
		}
		all = append(all, named(pod, store.what, store.name, outages)...)
	}
	return all
}

// named writes outages down. Each reaches from the begin of the first counts in which
// the store was away to the end of the last ones: it was no longer than that, and what
// is known of its place in them is in the text.
func named(pod, what string, store holdover.Store, outages []outage) (all []Incident) {
	slices.SortStableFunc(outages, func(a, b outage) int { return cmp.Compare(b.to.Sub(b.from), a.to.Sub(a.from)) })
	for i, o := range outages {
		if i == maxAway {
			rest := o
			for _, more := range outages[i+1:] {
				rest.add(more)
			}
			text := fmt.Sprintf("%d more stretches, each no longer than %s, in which %s gave no answer to %d of %d operations in all (%s)",
				len(outages)-i, o.to.Sub(o.from).Round(time.Second), store, rest.away, rest.of, answers(rest.answers))
			return append(all, Incident{Pod: pod, What: what, From: rest.from, To: rest.to, Text: text})
		}
		text := fmt.Sprintf("%s gave no answer to %d of %d operations within this time (%s), %s; what was not compared counts against the coverage",
			store, o.away, o.of, answers(o.answers), o.place())
		all = append(all, Incident{Pod: pod, What: what, From: o.from, To: o.to, Text: text})
	}
	return all
}

// place is what is known of when within its beats a store was away: by the times of
// the samples, which are few, and by how much was left unanswered.
func (o outage) place() string {
	text := "as many as come in about " + seconds(o.about.Seconds())
	if o.seen.First.IsZero() {
		return text + "; when within it is not known to the second"
	}
	if o.seen.First.Equal(o.seen.Last) {
		return text + "; the one sample of it is of " + stamp(o.seen.First)
	}
	return fmt.Sprintf("%s; the samples of it are of %s to %s", text, stamp(o.seen.First), stamp(o.seen.Last))
}

// unanswered: this side of a sample left the caller without an answer.
func unanswered(s compare.Side) bool {
	return s.Outcome == holdover.OutcomeError.String() || s.Outcome == holdover.OutcomeUnknown.String()
}

// answers writes how often a store said what.
func answers(counts map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
