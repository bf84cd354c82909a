package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holdover"
)

// The calls of a buyer, as they are named in a report.
const (
	opReserve = "reserve"
	opRelease = "release"
	opClaim   = "claim"
)

// buyers come over HTTP, in an open loop: each reserves one unit, and a moment
// later, at a time that is fixed beforehand too, claims it or gives it back.
type buyers struct {
	urls   []string // of the instances, dealt out in turn
	rate   float64  // buyers a second
	claims float64  // share of buyers who claim; the others release
	items  int64
	turn   uint64 // of the schedule: runs with the same one are met by the same arrivals
	seed   uint64 // of the tokens, another for each run
	client *http.Client
}

// thinkTime is between a buyer's reserve and what ends it.
const thinkTime = 100 * time.Millisecond

// buyerTimeout is longer than any call of `serve` may take.
const buyerTimeout = 10 * time.Second

func newBuyers(urls []string, rate, claims float64) *buyers {
	return &buyers{urls: urls, rate: rate, claims: claims, items: stageItems, client: &http.Client{
		Timeout: buyerTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: openCallers, MaxConnsPerHost: openCallers},
	}}
}

// buyer is one of them.
type buyer struct {
	token    holdover.Token
	item     int64
	url      string
	claims   bool
	answered chan struct{} // closed when the reserve has its answer

	granted    bool // set before that, as is answeredAt
	answeredAt time.Time
}

// arrival is one call that a buyer means to make.
type arrival struct {
	at  time.Duration
	who *buyer
	end bool
}

// tally is what buyers were told in the measured time of a run.
type tally struct {
	mu      sync.Mutex
	calls   map[string]*callTally
	lasting []claimTold // claims, when they are kept
	bad     []badCall   // the first of them
}

// badCall is a call that a buyer could do nothing with.
type badCall struct {
	op, answer string
	from, to   time.Time
}

// mostBad bounds how many of them are kept.
const mostBad = 1000

// callTally is of one kind of call.
type callTally struct {
	latency histogram // from the intended start
	answers map[string]int64
}

// claimTold is what a buyer was told of a claim.
type claimTold struct {
	token  holdover.Token
	url    string
	answer string
}

// good are the answers that a shop can go on with. Everything else is an error
// to the buyer.
var good = []string{"201", "200", "409 out-of-stock"}

// errors counts the calls of all kinds with another answer than the good ones.
func (t *tally) errors() (n int64) {
	for _, c := range t.calls {
		for answer, times := range c.answers {
			if !slices.Contains(good, answer) {
				n += times
			}
		}
	}
	return n
}

// during are the bad calls that were under way at some time between the two.
func (t *tally) during(from, to time.Time) (all []badCall) {
	for _, b := range t.bad {
		if b.from.Before(to) && b.to.After(from) {
			all = append(all, b)
		}
	}
	return all
}

// said lists the answers of each kind of call.
func (t *tally) said() string {
	var all []string
	for _, op := range slices.Sorted(maps.Keys(t.calls)) {
		all = append(all, op+" "+counts(t.calls[op].answers))
	}
	return strings.Join(all, "; ")
}

// of merges the latencies of some kinds of calls.
func (t *tally) of(ops ...string) *histogram {
	h := new(histogram)
	for _, op := range ops {
		if c := t.calls[op]; c != nil {
			h.merge(&c.latency)
		}
	}
	return h
}

func (t *tally) add(op, answer string, from, to time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[op]
	if c == nil {
		c = &callTally{answers: map[string]int64{}}
		t.calls[op] = c
	}
	c.answers[answer]++
	if !slices.Contains(good, answer) && len(t.bad) < mostBad {
		t.bad = append(t.bad, badCall{op, answer, from, to})
	}
	c.latency.add(to.Sub(from))
}

// run has buyers come for warm and then for measure, or until ctx ends when
// measure is zero, and returns when each has the answer to its last call.
func (b *buyers) run(ctx context.Context, warm, measure time.Duration, keepClaims bool) *tally {
	t := &tally{calls: map[string]*callTally{}}
	b.seed++
	began := time.Now()
	arrivals := make(chan arrival, openCallers)
	var calling sync.WaitGroup
	for range openCallers {
		calling.Go(func() {
			for a := range arrivals {
				b.serve(t, began, a, a.at >= warm, keepClaims)
			}
		})
	}
	schedule := b.schedule(ctx, warm+measure, measure > 0)
	var next arrival
	pace(context.WithoutCancel(ctx), began, func() (time.Duration, bool) {
		var more bool
		next, more = schedule()
		return next.at, more
	}, func(time.Duration) bool {
		arrivals <- next // callers take what is there to its end: each call has a time limit
		return true
	})
	close(arrivals)
	calling.Wait()
	b.client.CloseIdleConnections()
	return t
}

// saturate lets buyers come one after the other in a closed loop for a while, each
// with a reserve and what ends it, and says how many there were a second.
func (b *buyers) saturate(ctx context.Context, callers int, lasts time.Duration) float64 {
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	b.seed++
	var calling sync.WaitGroup
	var came atomic.Int64
	began := time.Now()
	for i := range callers {
		rng := rand.New(rand.NewPCG(b.seed, 13+uint64(i)))
		calling.Go(func() {
			none := &tally{calls: map[string]*callTally{}}
			for n := i; ctx.Err() == nil; n += callers {
				who := &buyer{
					token: randomToken(rng), item: 1 + rng.Int64N(b.items), url: b.urls[n%len(b.urls)] + "/v1/shops/1/reservations",
					claims: rng.Float64() < b.claims, answered: make(chan struct{}),
				}
				b.serve(none, began, arrival{who: who}, false, false)
				b.serve(none, began, arrival{who: who, end: true}, false, false)
				came.Add(1)
			}
		})
	}
	calling.Wait()
	b.client.CloseIdleConnections()
	return float64(came.Load()) / time.Since(began).Seconds()
}

// schedule says what comes next: reserves by the open loop, and each buyer's end
// a moment after it. No buyer begins after the end; those who have begun go on.
func (b *buyers) schedule(ctx context.Context, until time.Duration, bounded bool) func() (arrival, bool) {
	rng := rand.New(rand.NewPCG(b.seed, 11))
	loop := newOpenLoop(b.turn, b.rate)
	coming, n := loop.next(), 0
	var ends []arrival // in order, since everybody thinks equally long
	return func() (arrival, bool) {
		closed := ctx.Err() != nil || bounded && coming >= until
		switch {
		case len(ends) > 0 && (closed || ends[0].at <= coming):
			end := ends[0]
			ends = ends[1:]
			return end, true
		case closed:
			return arrival{}, false
		}
		who := &buyer{
			token: randomToken(rng), item: 1 + rng.Int64N(b.items), url: b.urls[n%len(b.urls)] + "/v1/shops/1/reservations",
			claims: rng.Float64() < b.claims, answered: make(chan struct{}),
		}
		begins := arrival{at: coming, who: who}
		ends = append(ends, arrival{at: coming + thinkTime, who: who, end: true})
		coming, n = loop.next(), n+1
		return begins, true
	}
}

// serve makes one call and tells what came of it.
func (b *buyers) serve(t *tally, began time.Time, a arrival, measured, keepClaims bool) {
	who, from := a.who, began.Add(a.at)
	if !a.end {
		defer close(who.answered)
		body := fmt.Sprintf(`{"token":%q,"lines":[{"item_id":%d,"group_id":1,"quantity":1}]}`, who.token, who.item)
		answer, _ := b.call(http.MethodPost, who.url, body)
		who.granted, who.answeredAt = answer == "201" || answer == "200", time.Now()
		if measured {
			t.add(opReserve, answer, from, who.answeredAt)
		}
		return
	}
	<-who.answered
	if !who.granted {
		return
	}
	if from.Before(who.answeredAt) {
		from = who.answeredAt // nobody can end what has not begun
	}
	op := opRelease
	if who.claims {
		op = opClaim
	}
	answer, _ := b.call(http.MethodPost, who.url+"/"+who.token.String()+"/"+op, "")
	if !measured {
		return
	}
	t.add(op, answer, from, time.Now())
	if who.claims && keepClaims {
		t.mu.Lock()
		t.lasting = append(t.lasting, claimTold{who.token, who.url, answer})
		t.mu.Unlock()
	}
}

// call makes one call. The answer is the status, with the kind of problem where
// there is one, or that there was none; state is the hold's.
func (b *buyers) call(method, url, body string) (answer, state string) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return "no call: " + err.Error(), ""
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return noAnswer, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return noAnswer, ""
	}
	var said struct{ Type, State string }
	_ = json.Unmarshal(text, &said) // what is no JSON has neither
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimPrefix(said.Type, "urn:holdover:"))), said.State
}

const noAnswer = "no answer"
