package dualwrite

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdover"
)

// The list, the turns and the counts stay what a plain recount says, whatever is
// added, tried and removed in whatever order.
func TestUnmirroredKeepsCount(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	u := newUnmirrored(50)
	tokens := make([]holdover.Token, 80)
	for i := range tokens {
		tokens[i] = holdover.NewToken()
	}
	var order []holdover.Token // as they came
	debt := map[holdover.Token]bool{}
	for range 20_000 {
		token := tokens[rng.IntN(len(tokens))]
		_, known := debt[token]
		switch rng.IntN(4) {
		case 0, 1:
			is := rng.IntN(2) == 0
			if added := u.add(token, unmirroredSince{debt: is}); added != (known || len(debt) < 50) {
				t.Fatalf("added %t with %d there, known %t", added, len(debt), known)
			} else if added {
				if !known {
					order = append(order, token)
				}
				debt[token] = is
			}
		case 2:
			is := rng.IntN(2) == 0
			if u.again(token, is); known {
				debt[token] = is
			}
		case 3:
			e := u.get(token)
			u.remove(token, e.version+1) // something happened meanwhile
			u.remove(token, e.version)
			delete(debt, token)
			order = slices.DeleteFunc(order, func(o holdover.Token) bool { return o == token })
		}
		debts := 0
		for _, is := range debt {
			if is {
				debts++
			}
		}
		if gotTokens, gotDebts, _ := u.size(); gotTokens != len(debt)-debts || gotDebts != debts {
			t.Fatalf("%d tokens and %d debts, want %d and %d", gotTokens, gotDebts, len(debt)-debts, debts)
		}
		var there []holdover.Token
		for e := u.oldest; e != nil; e = e.newer {
			there = append(there, e.token)
		}
		if !slices.Equal(there, order) {
			t.Fatal("the list is not as they came")
		}
	}
	u.clear()
	if n, debts, oldest := u.size(); n != 0 || debts != 0 || oldest != 0 || len(u.due(10)) != 0 {
		t.Errorf("%d tokens, %d debts, %s old after clear", n, debts, oldest)
	}
}

// Each token has its turn, however many there are before it, and one that was put
// off waits for its time.
func TestUnmirroredTakesTurns(t *testing.T) {
	u := newUnmirrored(100)
	seen := map[holdover.Token]int{}
	for range 10 {
		u.add(holdover.NewToken(), unmirroredSince{})
	}
	for range 5 {
		for _, token := range u.due(4) {
			seen[token]++
		}
	}
	if len(seen) != 10 {
		t.Errorf("%d of 10 tokens had a turn in 20", len(seen))
	}
	for token, n := range seen {
		if n != 2 {
			t.Errorf("a token had %d of 20 turns of 10", n)
		}
		u.again(token, false)
	}
	if n := len(u.due(100)); n != 0 {
		t.Errorf("%d tokens are due that were put off", n)
	}
	later := time.Now().Add(time.Minute)
	for e := u.oldest; e != nil; e = e.newer {
		e.next = e.next.Add(-time.Minute)
	}
	if n := len(u.due(100)); n != 10 || time.Now().After(later) {
		t.Errorf("%d tokens are due after their pause", n)
	}
}

// What a report of the state costs does not grow with an outage.
func BenchmarkUnmirroredSize(b *testing.B) {
	u := newUnmirrored(100_000)
	for range 100_000 {
		u.add(holdover.NewToken(), unmirroredSince{})
	}
	for b.Loop() {
		u.size()
	}
}
