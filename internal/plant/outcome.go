package plant

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"holdover"
	"holdover/compare"
)

// Result is what came of a self-test.
type Result struct {
	OK            bool            `json:"ok"` // all that was asked for was planted and caught
	Planted       uint64          `json:"planted"`
	Caught        uint64          `json:"caught"`
	Misclassified uint64          `json:"misclassified"`
	Missed        uint64          `json:"missed"`
	Unjudged      uint64          `json:"unjudged"` // a store did not answer, or not in time: planted again
	ByKind        map[string]Seen `json:"by_kind"`
	Stage         string          `json:"stage,omitempty"` // of a live pod
	Pod           string          `json:"pod,omitempty"`
	Load          uint64          `json:"load"` // dual operations of buyers meanwhile
	Flips         int             `json:"flips"`
	RedisVersion  string          `json:"redis_version,omitempty"`
	MySQLVersion  string          `json:"mysql_version,omitempty"`
	Seconds       float64         `json:"seconds"`
	NotPlanted    int             `json:"not_planted,omitempty"` // kinds that could not be planted, at least once
	Failed        []string        `json:"failed,omitempty"`      // which, and why: a sentence for each cause
}

// Seen is what came of one kind.
type Seen struct {
	Planted uint64            `json:"planted"`
	Caught  uint64            `json:"caught"`
	SeenAs  map[string]uint64 `json:"seen_as"`
}

// NotPlanted is a plant that could not be made, and says nothing of the comparator.
type NotPlanted struct {
	Kind  compare.Kind
	Stage holdover.Stage
	Err   error
}

func (e *NotPlanted) Error() string { return fmt.Sprintf("plant %s in %s: %v", e.Kind, e.Stage, e.Err) }

// Unwrap gives the cause.
func (e *NotPlanted) Unwrap() error { return e.Err }

// Unplanted is kinds that could not be planted for one cause.
type Unplanted struct {
	Kinds []string
	Cause string
}

func (u Unplanted) String() string {
	if len(u.Kinds) == 1 {
		return fmt.Sprintf("1 kind could not be planted (%s): %s", u.Kinds[0], u.Cause)
	}
	return fmt.Sprintf("%d kinds could not be planted (%s): %s", len(u.Kinds), strings.Join(u.Kinds, ", "), u.Cause)
}

// Group puts plants that could not be made together by their cause, each kind
// once. Nil errors are left out.
func Group(failed []error) (all []Unplanted) {
	for _, err := range failed {
		if err == nil {
			continue
		}
		kind, why := "any", cause(err)
		if e := (*NotPlanted)(nil); errors.As(err, &e) {
			kind = e.Kind.String()
		}
		i := slices.IndexFunc(all, func(u Unplanted) bool { return u.Cause == why })
		if i < 0 {
			i, all = len(all), append(all, Unplanted{Cause: why})
		}
		if !slices.Contains(all[i].Kinds, kind) {
			all[i].Kinds = append(all[i].Kinds, kind)
		}
	}
	return all
}

// cause is an error without the kind.
func cause(err error) string {
	if e := (*NotPlanted)(nil); errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// Fail notes plants that could not be made.
func (r *Result) Fail(failed []error) {
	kinds := map[string]bool{}
	for _, u := range Group(failed) {
		r.OK, r.Failed = false, append(r.Failed, u.String())
		for _, k := range u.Kinds {
			kinds[k] = true
		}
	}
	r.NotPlanted = len(kinds)
}

// Blind reports whether the comparator did not see something as what it is.
func (r Result) Blind() bool { return r.Missed+r.Misclassified > 0 }

// Count makes the result of what a comparator counted; each of kinds must have
// been caught times often, or as often as it is listed, and times more. What could
// not be judged says nothing, unless it is most of all.
func Count(planted []compare.Planted, kinds []compare.Kind, times int) Result {
	all, byKind := compare.SumPlants(planted)
	r := Result{Planted: all.Planted, Caught: all.Caught, Misclassified: all.Misclassified, Missed: all.Missed, Unjudged: all.Unjudged, ByKind: map[string]Seen{}}
	r.OK = all.Planted > 0 && all.Missed+all.Misclassified == 0 && !all.TooManyUnjudged()
	for _, kind := range kinds {
		r.ByKind[kind.String()] = Seen{SeenAs: map[string]uint64{}}
	}
	for _, s := range byKind {
		k := Seen{Planted: s.Planted, Caught: s.Caught, SeenAs: map[string]uint64{}}
		for got, n := range s.SeenAs {
			k.SeenAs[seenAs(got)] = n
		}
		r.ByKind[s.Kind.String()] = k
	}
	for _, k := range r.ByKind {
		r.OK = r.OK && k.Caught >= uint64(times)
	}
	return r
}

func seenAs(k compare.Kind) string {
	if k == compare.KindNone {
		return "nothing"
	}
	return k.String()
}

// WriteText prints the result for people.
func (r Result) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%-15s %8s %7s  %s\n", "kind", "planted", "caught", "seen as")
	for _, kind := range compare.Kinds() {
		k, ok := r.ByKind[kind.String()]
		if !ok {
			continue
		}
		var seen []string
		for as := range k.SeenAs {
			seen = append(seen, as)
		}
		slices.SortFunc(seen, func(a, b string) int { return cmp.Or(cmp.Compare(k.SeenAs[b], k.SeenAs[a]), cmp.Compare(a, b)) })
		fmt.Fprintf(w, "%-15s %8d %7d ", kind, k.Planted, k.Caught)
		for _, as := range seen {
			fmt.Fprintf(w, " %s %d", as, k.SeenAs[as])
		}
		fmt.Fprintln(w)
	}
	if r.Blind() { // else the causes are the command's error
		for _, f := range r.Failed {
			fmt.Fprintln(w, "not planted:", f)
		}
	}
	word := "NOT OK"
	if r.OK {
		word = "OK"
	}
	_, err := fmt.Fprintf(w, "%s after %.0f s: %d planted, %d caught, %d misclassified, %d missed, %d could not be judged; %d flips, %d dual operations of buyers meanwhile\n",
		word, r.Seconds, r.Planted, r.Caught, r.Misclassified, r.Missed, r.Unjudged, r.Flips, r.Load)
	return err
}
