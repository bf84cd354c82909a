package bench

import (
	"context"
	"math/rand/v2"
	"time"
)

// openLoop are the beginnings of calls in an open loop: fixed beforehand by the
// seed and the rate, whatever the answers do. Who is late is measured from the
// time that is written here.
type openLoop struct {
	rng *rand.Rand
	gap float64 // mean, in ns
	at  float64
}

func newOpenLoop(seed uint64, perS float64) *openLoop {
	return &openLoop{rng: rand.New(rand.NewPCG(seed, 7)), gap: 1e9 / perS}
}

// next is when the next call is meant to begin: arrivals of independent buyers.
func (o *openLoop) next() time.Duration {
	o.at += o.rng.ExpFloat64() * o.gap
	return time.Duration(o.at)
}

// pace calls send at each time that next says, counted from began, until send or
// next says that it was the last one, or ctx ends. Go's own timers are up to a
// millisecond late on an idle process, which is more than a call to Redis takes:
// it sleeps on a thread of its own.
func pace(ctx context.Context, began time.Time, next func() (at time.Duration, more bool), send func(at time.Duration) bool) {
	for ctx.Err() == nil {
		at, more := next()
		if !more {
			return
		}
		for left := at - time.Since(began); left > 0 && ctx.Err() == nil; left = at - time.Since(began) {
			threadSleep(min(left, 50*time.Millisecond))
		}
		if ctx.Err() != nil || !send(at) {
			return
		}
	}
}
