package bench

import (
	"sync"
)

// combiner hands waiting calls to its workers, many at a time: a worker takes
// what waits, up to a bound, and nobody waits for company.
type combiner struct {
	queue   chan *call
	workers sync.WaitGroup
}

const (
	combineMost  = 128
	combineQueue = 10_000
)

func newCombiner(workers int, serve func([]*call)) *combiner {
	c := &combiner{queue: make(chan *call, combineQueue)}
	for range workers {
		c.workers.Go(func() {
			batch := make([]*call, 0, combineMost)
			for first := range c.queue {
				batch = append(batch[:0], first)
			more:
				for len(batch) < combineMost {
					select {
					case next, ok := <-c.queue:
						if !ok {
							break more
						}
						batch = append(batch, next)
					default:
						break more
					}
				}
				serve(batch)
			}
		})
	}
	return c
}

func (c *combiner) do(one *call) (bool, error) {
	c.queue <- one
	r := <-one.reply
	return r.granted, r.err
}

// close ends the workers. No call may come any more.
func (c *combiner) close() {
	close(c.queue)
	c.workers.Wait()
}
