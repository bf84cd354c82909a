package bench

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

func parse(t *testing.T, dsn string) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// A quantile is off by less than a bucket's width.
func TestHistogram(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var halves [2]histogram
	var all []float64
	for i := range 20_000 {
		ns := math.Exp(rng.Float64()*20 + 4) // 55 ns to 26 s
		halves[i%2].add(time.Duration(ns))
		all = append(all, ns/1000)
	}
	halves[0].merge(&halves[1])
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999, 1} {
		want := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
		if got := halves[0].quantileUs(q); math.Abs(got-want) > want*0.008+0.001 {
			t.Errorf("quantile %g is %g µs, want %g", q, got, want)
		}
	}
	for _, ns := range []int64{-1, 0, 1, 127, 128, 255, 256, 1 << 36, 1<<37 - 1, 1 << 60} {
		if b := bucketOf(ns); b < 0 || b >= histogramBuckets {
			t.Errorf("%d ns is in bucket %d", ns, b)
		}
	}
}

// Planted faults are counted, and right books are not.
func TestTruthSeesFaults(t *testing.T) {
	stock := []int64{10, 100}
	right := told{units: []int64{10, 5}, calls: 15, lastStart: []int64{50, 50}, claimed: []int64{0, 0}}
	books := truth{left: []int64{0, 95}, held: []int64{10, 5}, holds: 15}
	if n := oversold(stock, right, books) + falseSoldOut(right, books) + lostHolds(right, books); n != 0 {
		t.Errorf("right books have %d faults", n)
	}
	if n := oversold(stock, right, truth{left: []int64{3, 95}}); n != 3 {
		t.Errorf("3 units sold that are still there: %d", n)
	}
	over := right
	over.units = []int64{14, 5}
	if n := oversold(stock, over, truth{left: []int64{-4, 95}}); n != 4 {
		t.Errorf("4 units sold below zero: %d", n)
	}
	if n := lostHolds(right, truth{holds: 13}); n != 2 {
		t.Errorf("2 grants without a hold: %d", n)
	}
	refused := right
	refused.refusals = []refusal{
		{item: 0, quantity: 1, at: 60},       // right: nothing came after it
		{item: 0, quantity: 1, at: 40},       // wrong: somebody who asked later got one
		{item: 1, quantity: 1, at: 60},       // wrong: 95 are left
		{item: 1, quantity: 96, at: 60},      // right: so many are not
		{item: several, quantity: 0, at: 60}, // right: item 0 is out
	}
	if n := falseSoldOut(refused, books); n != 2 {
		t.Errorf("2 wrong refusals: %d", n)
	}
	if n := falseSoldOut(told{refusals: []refusal{{item: several}}}, truth{left: []int64{1, 1}}); n != 1 {
		t.Errorf("a cart refused with everything there: %d", n)
	}
	claimed := told{claimed: []int64{4, 0}}
	if n := wrongLedger(claimed, truth{deducted: []int64{3, 1}}); n != 2 {
		t.Errorf("a ledger that is off by 2: %d", n)
	}
}

func TestFitLogLog(t *testing.T) {
	var points []Point
	for _, x := range []float64{1, 10, 100, 1000} {
		points = append(points, Point{x, 3 * math.Pow(x, 0.7)})
	}
	if slope, r2 := fitLogLog(points); math.Abs(slope-0.7) > 1e-9 || math.Abs(r2-1) > 1e-9 {
		t.Errorf("slope %g, R² %g: want 0.7 and 1", slope, r2)
	}
	if slope, _ := fitLogLog([]Point{{5, 1}, {5, 2}}); slope != 0 {
		t.Errorf("one place on the axis has slope %g", slope)
	}
}

func TestBand(t *testing.T) {
	for rate, want := range map[float64]string{
		0: "optimistic", 0.049: "optimistic", 0.05: "optimistic with bounded retry and backoff", 0.2: "pessimistic, or smooth the peak",
		0.5: "pessimistic, or smooth the peak", 0.51: "remove the hot spot", 1: "remove the hot spot",
	} {
		if got := Band(rate); got != want {
			t.Errorf("%g: %q, want %q", rate, got, want)
		}
	}
}

// The proxy delivers everything, in order, later, and without one byte waiting
// for the one before it.
func TestDelay(t *testing.T) {
	upstream, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer upstream.Close()
	go func() {
		conn, err := upstream.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		conn.Close()
	}()
	const rtt = 20 * time.Millisecond
	d, err := startDelay(upstream.Addr().String(), rtt)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", d.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	const messages = 50
	go func() {
		for i := range messages {
			fmt.Fprintf(conn, "%04d", i)
		}
	}()
	answer := make([]byte, 4*messages)
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	for i := range messages {
		if got := string(answer[4*i : 4*i+4]); got != fmt.Sprintf("%04d", i) {
			t.Fatalf("message %d is %q", i, got)
		}
	}
	began = time.Now()
	for range messages {
		fmt.Fprint(conn, "turn")
		if _, err := io.ReadFull(conn, answer[:4]); err != nil {
			t.Fatal(err)
		}
	}
	if turns := time.Since(began); took < rtt || turns < messages*rtt || took > turns/2 {
		t.Errorf("%d messages took %s at once and %s in turn, with a round trip of %s", messages, took, turns, rtt)
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
	if _, err := conn.Read(answer); err == nil {
		t.Error("the connection is open after the proxy was closed")
	}
}

// Every name that a report can have is explained and has its place.
func TestWaysAreComplete(t *testing.T) {
	for name := range Ways {
		if !slices.Contains(wayOrder, name) {
			t.Errorf("%s has no place in the order", name)
		}
	}
	if len(wayOrder) != len(Ways) {
		t.Errorf("%d ways in order, %d explained", len(wayOrder), len(Ways))
	}
}

func TestTargets(t *testing.T) {
	r := &run{}
	r.target("a", 26, ">=", 25, 0)
	r.target("b", 24, ">=", 25, 0)
	r.target("c", 0.7, ">=", 0.6, 1)
	r.target("d", 0, "=", 0, 0)
	for i, want := range []string{"reached", "short of target", "the aim is 1", "reached"} {
		if got := r.report.Targets[i].String(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: want it to end in %q", got, want)
		}
	}
	r.finish()
	if !r.report.OK {
		t.Error("a ratio below its target breaks no invariant")
	}
}

func TestPlots(t *testing.T) {
	var b strings.Builder
	c := Curve{Name: "n", X: "x", Y: "y", LogX: true, LogY: true, Series: []Series{{"one", []Point{{1, 10}, {100, 1000}}}, {"two", []Point{{10, 0}}}}}
	c.writeText(&printer{to: &b})
	lines := strings.Split(b.String(), "\n")
	if !strings.HasSuffix(lines[1], strings.Repeat(" ", plotWidth-1)+"a") || !strings.HasSuffix(lines[plotHeight], "|a"+strings.Repeat(" ", plotWidth/2-2)+"b") && !strings.Contains(lines[plotHeight], "|a") {
		t.Errorf("plot:\n%s", b.String())
	}
	b.Reset()
	bars := Curve{Name: "n", Y: "y", Series: []Series{{"one", []Point{{0, 10}}}, {"two", []Point{{1, 5}}}}}
	bars.writeText(&printer{to: &b})
	if got := strings.Count(b.String(), "#"); got != barWidth+barWidth/2 {
		t.Errorf("%d characters of bars, want %d:\n%s", got, barWidth+barWidth/2, b.String())
	}
}
