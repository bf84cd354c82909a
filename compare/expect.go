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
	held     *[numKinds][numKinds]uint64 // counts of a plant that may turn out to be none; nil: they count at once
}

type expectation struct {
	token holdover.Token
	want  Kind
}

// Expect announces that the next observation of token, on a reserved shop, is
// planted to be of this kind. Observations of reserved shops that nobody expects
// are ignored: setting a plant up takes ordinary operations. At most 1,000 are
// expected at a time; above it the oldest counts as missed.
func (c *Comparator) Expect(token holdover.Token, want Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &c.plants
	if i := p.find(token); i >= 0 {
		p.expected[i].want = want
		return
	}
	if len(p.expected) == maxExpected {
		c.countPlant(p.expected[0].want, KindNone)
		p.expected = slices.Delete(p.expected, 0, 1)
	}
	p.expected = append(p.expected, expectation{token, want})
}

// Missed says that the planter has given up waiting for this token: its plant
// counts as not seen, unless it was.
func (c *Comparator) Missed(token holdover.Token) { c.plant(token, KindNone) }

// plant counts what was seen of a token, if it is expected.
func (c *Comparator) plant(token holdover.Token, got Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.plants.find(token)
	if i < 0 {
		return
	}
	c.countPlant(c.plants.expected[i].want, got)
	c.plants.expected = slices.Delete(c.plants.expected, i, i+1)
}

// countPlant is called with the lock held.
func (c *Comparator) countPlant(want, got Kind) {
	if c.plants.held != nil {
		c.plants.held[want][got]++
		return
	}
	c.open.planted[want][got]++
}

// HoldPlants keeps what is seen of plants from counting until TakePlants says
// whether it does: what a change of stage crossed was not planted as it was meant.
func (c *Comparator) HoldPlants() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plants.held = new([numKinds][numKinds]uint64)
}

// TakePlants ends HoldPlants: what was held counts, or was nothing.
func (c *Comparator) TakePlants(counts bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.plants.held
	c.plants.held = nil
	if held == nil || !counts {
		return
	}
	for want := range held {
		for got, n := range held[want] {
			c.open.planted[want][got] += n
		}
	}
}

func (p *plants) find(token holdover.Token) int {
	return slices.IndexFunc(p.expected, func(e expectation) bool { return e.token == token })
}
