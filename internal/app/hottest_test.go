package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"holdover"
)

func asking(shop int64, items ...int64) holdover.Request {
	r := holdover.Request{Shop: shop}
	for _, item := range items {
		r.Lines = append(r.Lines, holdover.Line{Item: item, Quantity: 3})
	}
	return r
}

func TestHottestItem(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	h := newHottest(func() time.Time { return now })
	want := func(what string, last, peak int64) {
		t.Helper()
		if l, p := h.rates(); l != last || p != peak {
			t.Errorf("%s: %d in the last second and %d at its peak, want %d and %d", what, l, p, last, peak)
		}
	}
	want("before anything", 0, 0)
	for range 3 {
		h.saw(asking(1, 7, 8))
	}
	h.saw(asking(2, 7)) // the same number in another shop is another item
	h.saw(asking(1, 8))
	want("within the second", 0, 4)
	now = now.Add(time.Second)
	want("after it", 4, 4)
	h.saw(asking(1, 7))
	now = now.Add(time.Second)
	want("after a quieter one", 1, 4)
	h.saw(asking(1, 9))
	now = now.Add(5 * time.Second)
	want("after a pause", 0, 4)
	for range 6 {
		h.saw(asking(1, 9))
	}
	want("a new peak shows at once", 0, 6)
}

func TestHottestItemIsBounded(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	h := newHottest(func() time.Time { return now })
	h.saw(asking(1, 1))
	for item := range int64(3 * hottestItems) {
		h.saw(asking(1, item+1))
	}
	for range 9 {
		h.saw(asking(1, 1))
		h.saw(asking(1, 3*hottestItems)) // too late to be counted in this second
	}
	if n := len(h.counts); n != hottestItems {
		t.Errorf("%d items are counted, want %d", n, hottestItems)
	}
	if _, peak := h.rates(); peak != 11 {
		t.Errorf("peak %d, want 11 of the item that was among the first", peak)
	}
	now = now.Add(time.Second)
	for range 12 {
		h.saw(asking(1, 3*hottestItems))
	}
	if _, peak := h.rates(); peak != 12 {
		t.Errorf("in the next second the other item counts: peak %d, want 12", peak)
	}
}

func TestHottestItemUnderConcurrency(t *testing.T) {
	h := newHottest(time.Now)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range int64(500) {
				h.saw(asking(1, i%5))
			}
		})
	}
	all.Wait()
	if _, peak := h.rates(); peak < 1 || peak > 800 {
		t.Errorf("peak %d of five items asked for 800 times each", peak)
	}
}

func BenchmarkHottest(b *testing.B) {
	h := newHottest(time.Now)
	r := asking(1, 7)
	b.ReportAllocs()
	for b.Loop() {
		h.saw(r)
	}
}

// What `holdover advise` reads is in the scrape: the hottest item's peak, and
// for what the pod's connections to MySQL were taken.
func TestMetricsForAdvice(t *testing.T) {
	c := newConfig(t)
	a, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close(t.Context())
	pod := a.Pods[0]
	reserver := counted{pod.Facade, pod.hottest}
	for range 3 { // without a fence every call is refused: it was asked for all the same
		_, _ = reserver.Reserve(t.Context(), holdover.Request{Shop: 1, Token: holdover.NewToken(), Lines: []holdover.Line{{Item: 7, Quantity: 1}}, TTL: time.Minute})
	}
	if _, err := pod.MySQL.Stocks(t.Context(), holdover.Stock{}, 10); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	a.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := answer.Body.String()
	for _, want := range []string{
		`holdover_hottest_item_peak_rate{pod="pod-a"} `,
		`holdover_hottest_item_rate{pod="pod-a"} `,
		`holdover_mysql_connection_holds_total{pod="pod-a",tag="list stocks"} 1`,
		`holdover_mysql_connection_hold_seconds_total{pod="pod-a",tag="list stocks"} `,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics don't have %q", want)
		}
	}
	if strings.Contains(text, `holdover_hottest_item_peak_rate{pod="pod-a"} 0`) {
		t.Error("three reserves did not make a peak")
	}
}
