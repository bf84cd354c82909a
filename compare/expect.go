package compare

import (
	"slices"

	"holdover"
)

// maxExpected bounds the plants that are waited for at a time.
const maxExpected = 1000

// plants are the observations that are expected on reserved shops, oldest first.
type plants struct {
	expected []expectation
}

type expectation struct {
	token holdover.Token
	want  Kind
	of    *Plant // nil: what is seen counts at once
}

// Plant is one planted divergence, or several at once, whose counts wait until the
// planter knows that it was planted as it was meant.
type Plant struct {
	c      *Comparator
	counts [numKinds][numKinds]uint64 // wanted, seen; under c.mu
	over   bool
}

// Plant begins one; its Take ends it.
func (c *Comparator) Plant() *Plant { return &Plant{c: c} }

// Expect announces that the next observation of token, on a reserved shop, is
// planted to be of this kind. Observations of reserved shops that nobody expects
// are ignored: setting a plant up takes ordinary operations. At most 1,000 are
// expected at a time; above it the oldest counts as missed.
func (c *Comparator) Expect(token holdover.Token, want Kind) { c.expect(expectation{token, want, nil}) }

// Expect is the comparator's, for this plant.
func (p *Plant) Expect(token holdover.Token, want Kind) { p.c.expect(expectation{token, want, p}) }

func (c *Comparator) expect(e expectation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.plants
	if i := p.find(e.token); i >= 0 {
		p.expected[i] = e
		return
	}
	if len(p.expected) == maxExpected {
		c.countPlant(p.expected[0], KindNone)
		p.expected = slices.Delete(p.expected, 0, 1)
	}
	p.expected = append(p.expected, e)
}

// Missed says that the token's observation was given to the comparator: its plant
// counts as not seen, unless it was.
func (c *Comparator) Missed(token holdover.Token) { c.plant(token, KindNone) }

// Late says that the token's observation did not come in time, as on a machine that
// is too busy: its plant counts as not comparable, which nobody can judge. One that
// was to be not comparable counts as nothing.
func (c *Comparator) Late(token holdover.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.plants.find(token)
	if i < 0 {
		return
	}
	if e := c.plants.expected[i]; e.want != KindNotComparable {
		c.countPlant(e, KindNotComparable)
	}
	c.plants.expected = slices.Delete(c.plants.expected, i, i+1)
}

// plant counts what was seen of a token, if it is expected.
func (c *Comparator) plant(token holdover.Token, got Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.plants.find(token)
	if i < 0 {
		return
	}
	c.countPlant(c.plants.expected[i], got)
	c.plants.expected = slices.Delete(c.plants.expected, i, i+1)
}

// countPlant is called with the lock held. What comes after its plant was taken
// counts as nothing.
func (c *Comparator) countPlant(e expectation, got Kind) {
	switch {
	case e.of == nil:
		c.open.planted[e.want][got]++
	case !e.of.over:
		e.of.counts[e.want][got]++
	}
}

// Take ends the plant. Its counts count, or are nothing: what a change of stage
// crossed was not planted as it was meant. It reports whether all of it could be
// judged.
func (p *Plant) Take(counts bool) (judged bool) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.over = true
	judged = true
	for want := range p.counts {
		for got, n := range p.counts[want] {
			if counts {
				p.c.open.planted[want][got] += n
			}
			judged = judged && !(n > 0 && unjudged(Kind(want), Kind(got)))
		}
	}
	return judged
}

func (p *plants) find(token holdover.Token) int {
	return slices.IndexFunc(p.expected, func(e expectation) bool { return e.token == token })
}
