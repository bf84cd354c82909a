package compare

import (
	"reflect"
	"testing"

	"holdover"
)

// Several planters are at work at a time: the plant of one neither ends nor loses
// that of another, and one that is taken back counts as nothing.
func TestPlantsAtOnce(t *testing.T) {
	c := start(t, Config{Reserved: func(shop int64) bool { return shop == 99 }})
	plant := func(p *Plant, want Kind) {
		o := seen(holdover.StageShadow, holdover.OpReserve, granted, refused)
		o.Shop = 99
		p.Expect(o.Token, want)
		c.Observe(o)
	}
	first, second, third := c.Plant(), c.Plant(), c.Plant()
	plant(first, KindUnexplained)
	plant(second, KindUnexplained)
	plant(third, KindUnexplained)
	if len(c.Counts().Planted) != 0 {
		t.Errorf("counted before it was taken: %v", c.Counts().Planted)
	}
	if !first.Take(true) || !third.Take(false) || !second.Take(true) {
		t.Error("they were judged")
	}
	plant(second, KindUnexplained) // too late
	if got, want := c.Counts().Planted, []Planted{{KindUnexplained, KindUnexplained, 2}}; !reflect.DeepEqual(got, want) {
		t.Errorf("planted %v, want %v", got, want)
	}
}

// What did not come in time can't be judged, and one that was to be not comparable
// is not caught by that.
func TestLatePlants(t *testing.T) {
	c := start(t, Config{Reserved: func(shop int64) bool { return shop == 99 }})
	p := c.Plant()
	for _, want := range []Kind{KindLocation, KindNotComparable} {
		token := holdover.NewToken()
		p.Expect(token, want)
		c.Late(token)
	}
	if p.Take(true) {
		t.Error("it was judged")
	}
	if got, want := c.Counts().Planted, []Planted{{KindLocation, KindNotComparable, 1}}; !reflect.DeepEqual(got, want) {
		t.Errorf("planted %v, want %v", got, want)
	}
}

// TestSumPlants: caught, missed, misclassified and unjudged are told apart in one place.
func TestSumPlants(t *testing.T) {
	all, byKind := SumPlants([]Planted{
		{KindLocation, KindLocation, 5}, {KindLocation, KindNotComparable, 4}, {KindLocation, KindNone, 3}, {KindLocation, KindMatch, 2}, {KindLocation, KindPoolShort, 1},
		{KindNotComparable, KindNotComparable, 6}, {KindMatch, KindUnexplained, 7},
	})
	if all.Planted != 28 || all.Caught != 11 || all.Unjudged != 4 || all.Missed != 3 || all.Misclassified != 10 || all.TooManyUnjudged() {
		t.Errorf("%+v", all)
	}
	if len(byKind) != 3 || byKind[0].Kind != KindMatch || byKind[1].Kind != KindLocation || byKind[1].Caught != 5 || byKind[1].SeenAs[KindPoolShort] != 1 {
		t.Errorf("%+v", byKind)
	}
	if most, _ := SumPlants([]Planted{{KindLocation, KindLocation, 4}, {KindLocation, KindNotComparable, 5}}); !most.TooManyUnjudged() {
		t.Errorf("%+v", most)
	}
}
