package torture

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"holdover"
)

// trail is what happened in one schedule, by the clock of this process: every
// call with its answer, every fault and step, every fence that was seen.
type trail struct {
	began time.Time

	mu     sync.Mutex
	calls  []call
	events []event
}

// call is one question to one instance.
type call struct {
	op         string
	token      holdover.Token
	lines      []holdover.Line
	instance   string
	start, end time.Duration
	res        holdover.Result
	err        error
}

// event is anything else.
type event struct {
	at   time.Duration
	text string
}

func newTrail() *trail { return &trail{began: time.Now()} }

func (t *trail) now() time.Duration { return time.Since(t.began) }

// begin writes a call down when it is asked, so that whoever looks at the trail
// knows what is under way; end adds the answer.
func (t *trail) begin(c call) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.start, c.end, c.err = time.Since(t.began), underWay, errUnderWay
	t.calls = append(t.calls, c)
	return len(t.calls) - 1
}

func (t *trail) end(n int, res holdover.Result, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.calls[n]
	c.end, c.res, c.err = time.Since(t.began), res, err
}

// underWay is the end of a call that has none.
const underWay = time.Duration(math.MaxInt64)

var errUnderWay = &holdover.StoreError{Pod: podName, Op: "answer a call", Unknown: true, Err: errors.New("it is under way")}

func (t *trail) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.events = append(t.events, event{time.Since(t.began), fmt.Sprintf(format, args...)})
}

// all returns the calls so far, by their start.
func (t *trail) all() []call {
	t.mu.Lock()
	calls := slices.Clone(t.calls)
	t.mu.Unlock()
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.start, b.start) })
	return calls
}

func (t *trail) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls)
}

// clear reports whether the buyer knows what happened.
func (c call) clear() bool {
	return !holdover.NoAnswer(c.err) && !errors.Is(c.err, holdover.ErrOverloaded) && !errors.Is(c.err, holdover.ErrNotReady) &&
		!errors.Is(c.err, holdover.ErrTryAgain) && !errors.Is(c.err, holdover.ErrStale)
}

func (c call) String() string {
	what := c.op
	for _, l := range c.lines {
		what += fmt.Sprintf(" %dx%d@%d", l.Quantity, l.Item, l.Group)
	}
	answer := fmt.Sprintf("%s replayed=%t pending=%t", c.res.Hold.State, c.res.Replayed, c.res.Pending)
	if c.err != nil {
		answer = "error: " + c.err.Error()
	}
	d := c.res.Decision
	return fmt.Sprintf("%8.1f-%.1f ms  %s  %s at %s -> %s  [%s epoch %d, %s: %s]", ms(c.start), ms(c.end), c.token, what, c.instance, answer, d.Stage, d.Epoch, d.Store, d.Reason)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// maxPrinted bounds what is printed of one trail, in lines.
const maxPrinted = 500

// print writes the events, the calls of the tokens and, when that is said, those
// of all carts with one of their items.
func (t *trail) print(w io.Writer, tokens []holdover.Token, neighbours bool) {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	t.mu.Lock()
	for _, e := range t.events {
		lines = append(lines, line{e.at, fmt.Sprintf("%8.1f ms  *** %s", ms(e.at), e.text)})
	}
	t.mu.Unlock()
	calls := t.all()
	wanted := related(calls, tokens, neighbours)
	for _, c := range calls {
		if wanted[c.token] {
			lines = append(lines, line{c.start, c.String()})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	for i, l := range lines {
		if i == maxPrinted {
			fmt.Fprintf(w, "    ... %d more\n", len(lines)-i)
			return
		}
		fmt.Fprintf(w, "    %s\n", l.text)
	}
}

// related are the tokens, and with neighbours those whose carts share an item
// with one of them.
func related(calls []call, tokens []holdover.Token, neighbours bool) map[holdover.Token]bool {
	wanted, items := map[holdover.Token]bool{}, map[int64]bool{}
	for _, t := range tokens {
		wanted[t] = true
	}
	if !neighbours {
		return wanted
	}
	for _, c := range calls {
		if wanted[c.token] && c.op == "reserve" {
			for _, l := range c.lines {
				items[l.Item] = true
			}
		}
	}
	for _, c := range calls {
		for _, l := range c.lines {
			if c.op == "reserve" && items[l.Item] {
				wanted[c.token] = true
			}
		}
	}
	return wanted
}
