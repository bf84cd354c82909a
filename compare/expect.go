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
		c.open.planted[p.expected[0].want][KindNone]++
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
	c.open.planted[c.plants.expected[i].want][got]++
	c.plants.expected = slices.Delete(c.plants.expected, i, i+1)
}

func (p *plants) find(token holdover.Token) int {
	return slices.IndexFunc(p.expected, func(e expectation) bool { return e.token == token })
}
