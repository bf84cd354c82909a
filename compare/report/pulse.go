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

// A store counts as away in a minute in which it left this share of the operations
// without an answer; what is rarer is in the answers and in the coverage. Two such
// minutes with no more than this between them are one outage.
const (
	awayShare  = 0.05
	awayBridge = 2 * time.Minute
)

// maxAway bounds the outages of one store of one pod that are named one by one,
// the longest; the rest are added up.
const maxAway = 50

// away are the outages of one pod's stores.
func (p *Pulse) away(pod string) (all []Incident) {
	beats := p.Beats(pod)
	for _, store := range []struct {
		what string
		name holdover.Store
		of   func(Beat) (away uint64, answers map[string]uint64)
	}{
		{WhatMySQLAway, holdover.StoreMySQL, func(b Beat) (uint64, map[string]uint64) { return b.MySQLAway, b.MySQL }},
		{WhatRedisAway, holdover.StoreRedis, func(b Beat) (uint64, map[string]uint64) { return b.RedisAway, b.Redis }},
	} {
		var outages []Beat
		for _, b := range beats {
			n, answers := store.of(b)
			if n == 0 || float64(n) < awayShare*float64(b.Eligible) {
				continue
			}
			one := Beat{From: b.From, To: b.To, Eligible: b.Eligible, Compared: n, MySQL: maps.Clone(answers)}
			if last := len(outages) - 1; last >= 0 && b.From.Sub(outages[last].To) <= awayBridge {
				outages[last].add(one)
			} else {
				outages = append(outages, one)
			}
		}
		all = append(all, named(pod, store.what, store.name, outages)...)
	}
	return all
}

// named writes outages down; in each, Compared is what had no answer.
func named(pod, what string, store holdover.Store, outages []Beat) (all []Incident) {
	slices.SortStableFunc(outages, func(a, b Beat) int { return cmp.Compare(b.To.Sub(b.From), a.To.Sub(a.From)) })
	for i, o := range outages {
		text := fmt.Sprintf("%s gave no answer to %d of %d operations in these minutes (%s); what was not compared counts against the coverage",
			store, o.Compared, o.Eligible, answers(o.MySQL))
		if i == maxAway {
			rest := o
			for _, more := range outages[i+1:] {
				rest.add(more)
			}
			text = fmt.Sprintf("%d more stretches, each no longer than %s, in which %s gave no answer to %d of %d operations in all (%s)",
				len(outages)-i, o.To.Sub(o.From).Round(time.Second), store, rest.Compared, rest.Eligible, answers(rest.MySQL))
			return append(all, Incident{Pod: pod, What: what, From: rest.From, To: rest.To, Text: text})
		}
		all = append(all, Incident{Pod: pod, What: what, From: o.From, To: o.To, Text: text})
	}
	return all
}

// answers writes how often a store said what.
func answers(counts map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
