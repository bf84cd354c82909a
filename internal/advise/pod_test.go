package advise

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// scrape is an exposition of two pods. Numbers that grow are n, and pod-b's are
// there to be left out.
func scrape(n int) string {
	return fmt.Sprintf(`# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 12
# TYPE holdover_answers_total counter
holdover_answers_total{answer="granted",pod="pod-a"} %d
holdover_answers_total{answer="refused",pod="pod-a"} %d
holdover_answers_total{answer="claimed",pod="pod-a"} 5e+06
holdover_answers_total{answer="granted",pod="pod-b"} %d
holdover_hottest_item_peak_rate{pod="pod-a"} 250
holdover_hottest_item_peak_rate{pod="pod-b"} 9
holdover_http_panics_total 0
holdover_mysql_connection_holds_total{pod="pod-a",tag="claim"} %d
holdover_mysql_connection_hold_seconds_total{pod="pod-a",tag="claim"} %g
holdover_mysql_connection_holds_total{pod="pod-a",tag="vote"} %d
holdover_mysql_connection_hold_seconds_total{pod="pod-a",tag="vote"} %g
holdover_mysql_connection_hold_seconds_total{pod="pod-a",tag="odd \"tag\" {,} \\"} %g
`, n*800, n*200, n*7, n*500, float64(n)*2, n*40, float64(n)*0.4, float64(n)*0.1)
}

func sample(t *testing.T, n int, at time.Time) Sample {
	t.Helper()
	s, err := parse(strings.NewReader(scrape(n)))
	if err != nil {
		t.Fatal(err)
	}
	s.at = at
	return s
}

func TestFromPod(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	one := Pair{sample(t, 3, at), sample(t, 5, at.Add(2*time.Second))} // n grows by 1 a second
	got, err := FromPod("pod-a", []Pair{one})
	if err != nil {
		t.Fatal(err)
	}
	want := Numbers{PeakRate: 250, Rate: 1000, RowHold: 4 * ms, RowHoldIsBound: true, ConnectionsNow: 2.5, RateNow: 1000, OtherConnections: 2.1, HoldAfter: 500 * time.Microsecond}
	if tidy(got) != tidy(want) {
		t.Errorf("numbers\n%+v, want\n%+v", got, want)
	}
	two, err := FromPod("pod-a", []Pair{one, one})
	if err != nil {
		t.Fatal(err)
	}
	if two.PeakRate != 500 || two.Rate != 2000 || tidy(two).HoldAfter != tidy(got).HoldAfter || tidy(two).RowHold != tidy(got).RowHold {
		t.Errorf("two instances like it: %+v", two)
	}
	other, err := FromPod("pod-b", []Pair{one})
	if err != nil {
		t.Fatal(err)
	}
	if other.PeakRate != 9 || other.Rate != 7 || other.RowHold != 0 || other.HoldAfter != 0 || other.ConnectionsNow != 0 {
		t.Errorf("the other pod: %+v", other)
	}
}

// tidy takes the last digits off, where floats differ.
func tidy(n Numbers) Numbers {
	for _, v := range []*float64{&n.PeakRate, &n.Rate, &n.ConnectionsNow, &n.RateNow, &n.OtherConnections} {
		*v = math.Round(*v*1e6) / 1e6
	}
	n.RowHold, n.HoldAfter = n.RowHold.Round(time.Microsecond), n.HoldAfter.Round(time.Microsecond)
	return n
}

func TestFromPodRefuses(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	if _, err := FromPod("pod-a", []Pair{{sample(t, 5, at), sample(t, 3, at.Add(time.Second))}}); err == nil || !strings.Contains(err.Error(), "began anew") {
		t.Errorf("counts that go down: %v", err)
	}
	if _, err := FromPod("pod-a", []Pair{{sample(t, 5, at), sample(t, 5, at)}}); err == nil {
		t.Error("two looks at one moment were taken")
	}
}

func TestScrape(t *testing.T) {
	status, body := http.StatusOK, scrape(1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}))
	defer server.Close()
	s, err := Scrape(t.Context(), server.Client(), server.URL+"/")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.Pods(), " "); got != "pod-a pod-b" {
		t.Errorf("pods %q", got)
	}
	if got := s.sum(metricHeld, "pod-a", "tag", `odd "tag" {,} \`); got != 0.1 {
		t.Errorf("a label with quotes is not read: %v", got)
	}
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{http.StatusNotFound, "", "404"},
		{http.StatusOK, "go_goroutines 3\n", "no metrics of a holdover pod"},
		{http.StatusOK, "holdover_epoch{pod=\"a\"} many\n", "no number"},
		{http.StatusOK, "holdover_epoch\n", "can't be read"},
	} {
		status, body = c.status, c.body
		if _, err := Scrape(t.Context(), server.Client(), server.URL); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), server.URL) {
			t.Errorf("%d %q: %v, want %q and the address", c.status, c.body, err, c.want)
		}
	}
}
