package plant

import (
	"testing"

	"holdover/compare"
)

// One plant that is seen as something else, or not at all, or a kind that was
// planted too rarely, fails the test.
func TestCount(t *testing.T) {
	kinds := []compare.Kind{compare.KindMatch, compare.KindLocation}
	good := []compare.Planted{{Want: compare.KindMatch, Got: compare.KindMatch, Count: 2}, {Want: compare.KindLocation, Got: compare.KindLocation, Count: 2}}
	if r := Count(good, kinds, 2); !r.OK || r.Planted != 4 || r.Caught != 4 {
		t.Errorf("%+v", r)
	}
	if r := Count(good, kinds, 3); r.OK {
		t.Error("planted too rarely, and ok")
	}
	if r := Count(good[:1], kinds, 1); r.OK {
		t.Error("a kind was never planted, and ok")
	}
	if r := Count(nil, nil, 0); r.OK {
		t.Error("nothing was planted, and ok")
	}
	wrong := append(good, compare.Planted{Want: compare.KindLocation, Got: compare.KindUnexplained, Count: 1})
	if r := Count(wrong, kinds, 2); r.OK || r.Misclassified != 1 || r.ByKind["location"].SeenAs["unexplained"] != 1 {
		t.Errorf("%+v", r)
	}
	missed := append(good, compare.Planted{Want: compare.KindMatch, Got: compare.KindNone, Count: 1})
	if r := Count(missed, kinds, 2); r.OK || r.Missed != 1 || r.ByKind["match"].SeenAs["nothing"] != 1 {
		t.Errorf("%+v", r)
	}
	busy := append(good[:2:2], compare.Planted{Want: compare.KindLocation, Got: compare.KindNotComparable, Count: 2})
	if r := Count(busy, kinds, 2); !r.OK || r.Unjudged != 2 || r.Misclassified != 0 || r.ByKind["location"].SeenAs["not-comparable"] != 2 {
		t.Errorf("a busy machine: %+v", r)
	}
	busy[2].Count = 5
	if r := Count(busy, kinds, 2); r.OK {
		t.Error("most could not be judged, and ok")
	}
}
