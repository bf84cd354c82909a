package report

import (
	"fmt"
	"math"
	"slices"
	"time"

	"holdover"
	"holdover/compare"
)

// The drawings are plain numbers in the units of their viewBox.
const drawWidth = 960

type tick struct {
	X, Y float64
	Text string
}

// lanes draw each pod's stage over time.
type lanes struct {
	Height float64
	Bottom float64
	Bars   []bar
	Names  []tick
	Ticks  []tick
	Kills  []tick
	Drills []tick
}

type bar struct {
	X, Y, W, H float64
	Class      string
	Text       string // where it fits
	Title      string
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

const (
	laneLeft   = 120
	laneHeight = 26
	laneStep   = 36
)

func (r Report) drawLanes() *lanes {
	from, to := r.drawn()
	length := to.Sub(from).Seconds()
	if len(r.Timeline) == 0 || length <= 0 {
		return nil
	}
	x := func(t time.Time) float64 {
		return round(laneLeft + (drawWidth-laneLeft-30)*min(max(t.Sub(from).Seconds()/length, 0), 1))
	}
	l := &lanes{}
	y := 8.0
	for i, c := range r.Timeline {
		if i == 0 || r.Timeline[i-1].Pod != c.Pod {
			if i > 0 {
				y += laneStep
			}
			l.Names = append(l.Names, tick{X: laneLeft - 8, Y: y + 17, Text: cut(printable(c.Pod), 16)})
		}
		end := to
		if i+1 < len(r.Timeline) && r.Timeline[i+1].Pod == c.Pod {
			end = r.Timeline[i+1].At
		}
		b := bar{X: x(c.At), Y: y, H: laneHeight, Class: "stage-" + c.Stage.String()}
		b.W = round(max(x(end)-b.X, 1))
		b.Title = fmt.Sprintf("%s: %s at epoch %d since %s, by %s: %s", printable(c.Pod), c.Stage, c.Epoch, stamp(c.At), printable(c.By), printable(c.Reason))
		if c.Latched {
			b.Class += " latched"
		}
		if b.W > 60 {
			b.Text = c.Stage.String()
			if c.Latched && b.W > 130 {
				b.Text += ", latched"
			}
		}
		l.Bars = append(l.Bars, b)
		mark := func(what string) bool { // a latch that is written anew is no other kill
			return !c.Before && slices.ContainsFunc(r.Incidents, func(i Incident) bool { return i.What == what && i.Pod == c.Pod && i.From.Equal(c.At) })
		}
		switch at := (tick{X: b.X, Y: y, Text: printable(c.Reason)}); {
		case mark(WhatKill):
			l.Kills = append(l.Kills, at)
		case mark(WhatDrill):
			l.Drills = append(l.Drills, at)
		}
	}
	l.Bottom = y + laneStep
	l.Height = l.Bottom + 20
	for i := range 5 {
		at := from.Add(time.Duration(float64(to.Sub(from)) * float64(i) / 4))
		l.Ticks = append(l.Ticks, tick{X: x(at), Y: l.Bottom + 12, Text: clock(at, length)})
	}
	return l
}

// clock writes a time as exactly as the length of an axis asks for.
func clock(t time.Time, length float64) string {
	if length > 36*3600 {
		return t.UTC().Format("01-02 15:04")
	}
	return t.UTC().Format("15:04:05")
}

// cut shortens a text that has to fit.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// hourMap draws the coverage of each operation in each hour.
type hourMap struct {
	Height float64
	Cells  []bar
	Names  []tick
	Ticks  []tick
}

func (r Report) drawHours() *hourMap {
	hours := r.Coverage.Hours
	if len(hours) == 0 {
		return nil
	}
	first, last := hours[0].Hour, hours[len(hours)-1].Hour
	n := int(last.Sub(first)/time.Hour) + 1
	w := min((drawWidth-laneLeft-10)/float64(n), 40)
	m := &hourMap{}
	row := map[string]float64{}
	y := 4.0
	for op := holdover.OpReserve; op <= holdover.OpExtend; op++ {
		m.Names = append(m.Names, tick{X: laneLeft - 8, Y: y + 14, Text: op.String()})
		row[op.String()] = y
		y += 22
	}
	for _, h := range hours {
		at, known := row[h.Op]
		if !known {
			continue
		}
		class := "good"
		switch {
		case h.Share < r.Limits.MinCoverage/2:
			class = "bad"
		case h.Share < r.Limits.MinCoverage:
			class = "thin"
		}
		m.Cells = append(m.Cells, bar{
			X: round(laneLeft + w*h.Hour.Sub(first).Hours()), Y: at, W: round(max(w-1, 0.8)), H: 20, Class: class,
			Title: fmt.Sprintf("%s %s: %s of %d", h.Hour.Format("2006-01-02 15:00Z"), h.Op, percent(h.Share), h.Eligible),
		})
	}
	every := max(1, int(math.Ceil(70/w)))
	for i := 0; i < n; i += every {
		m.Ticks = append(m.Ticks, tick{X: round(laneLeft + w*float64(i)), Y: y + 14, Text: first.Add(time.Duration(i) * time.Hour).Format("01-02 15h")})
	}
	m.Height = y + 20
	return m
}

// plot draws the quantiles of one operation, with their intervals.
type plot struct {
	Title string
	Ticks []tick
	Names []tick
	Dots  []dot
}

type dot struct {
	X, Y, Low, High float64
	Class, Title    string
	OpenLow         bool
	OpenHigh        bool
}

const (
	plotWidth  = 460
	plotLeft   = 60
	plotHeight = 190
	plotTop    = 12
	plotBottom = 160
)

// drawPlots uses a scale that is linear near zero and logarithmic beyond 100
// µs, on both sides, because deltas are signed and tails are long.
func (r Report) drawPlots() (plots []plot) {
	for _, l := range r.Latency.Operations {
		low, high := 0.0, 0.0
		for _, s := range []Series{l.Redis, l.MySQL, l.Delta} {
			for _, q := range []Quantile{s.P50, s.P90, s.P99, s.P999} {
				low, high = min(low, q.Value, orElse(q.Low, q.Value)), max(high, q.Value, orElse(q.High, q.Value))
			}
		}
		scale := func(us float64) float64 { return math.Asinh(us / 100) }
		span := max(scale(high)-scale(low), 1e-9)
		y := func(us float64) float64 {
			return round(plotBottom - (plotBottom-plotTop)*(scale(us)-scale(low))/span)
		}
		p := plot{Title: fmt.Sprintf("%s, %d pairs", stageOp(l.Stage, l.Op, l.Probe), l.Pairs)}
		for _, us := range []float64{-1e6, -1e5, -1e4, -1e3, -1e2, 0, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7} {
			if us >= low && us <= high {
				p.Ticks = append(p.Ticks, tick{X: plotLeft - 6, Y: y(us), Text: axis(us)})
			}
		}
		for i, name := range []string{"p50", "p90", "p99", "p99.9"} {
			x := plotLeft + 50 + float64(i)*100
			p.Names = append(p.Names, tick{X: x, Y: plotBottom + 20, Text: name})
			for j, s := range []struct {
				name string
				from Series
			}{{"redis", l.Redis}, {"mysql", l.MySQL}, {"delta", l.Delta}} {
				q := []Quantile{s.from.P50, s.from.P90, s.from.P99, s.from.P999}[i]
				p.Dots = append(p.Dots, dot{
					X: x + float64(j-1)*18, Y: y(q.Value), Low: y(orElse(q.Low, q.Value)), High: y(orElse(q.High, q.Value)),
					OpenLow: q.Low == nil, OpenHigh: q.High == nil, Class: s.name, Title: s.name + " " + name + " " + quantile(q),
				})
			}
		}
		plots = append(plots, p)
	}
	return plots
}

// axis writes a round figure on an axis.
func axis(us float64) string {
	switch abs := math.Abs(us); {
	case abs >= 1e6:
		return fmt.Sprintf("%g s", us/1e6)
	case abs >= 1e3:
		return fmt.Sprintf("%g ms", us/1e3)
	case us == 0:
		return "0"
	default:
		return fmt.Sprintf("%g µs", us)
	}
}

func orElse(v *float64, other float64) float64 {
	if v == nil {
		return other
	}
	return *v
}

// rateBar draws a rate with its bounds on a logarithmic scale.
type rateBar struct {
	Name, Title string
	Y           float64
	Rate        float64
	Low, High   float64
	None        bool // the rate is zero: only its upper bound is drawn
	Class       string
}

const (
	rateLeft  = 170
	rateRight = 700
	rateLeast = -7 // 10^-7 and below are the left end
)

func rateX(v float64) float64 {
	at := math.Log10(max(v, math.Pow(10, rateLeast)))
	return round(rateLeft + (rateRight-rateLeft)*(at-rateLeast)/(0-rateLeast))
}

// drawRates draws the unexplained rate and those of the kinds that occurred.
func (r Report) drawRates() (bars []rateBar) {
	if r.Divergences.Compared == 0 {
		return nil
	}
	add := func(name, class string, e Estimate) {
		bars = append(bars, rateBar{
			Name: name, Class: class, Y: float64(20 + 24*len(bars)), Rate: rateX(e.Rate), Low: rateX(e.Low), High: rateX(e.High),
			None: e.Rate == 0, Title: between(e),
		})
	}
	add("unexplained", "oversell", r.Divergences.UnexplainedRate)
	for _, k := range r.Divergences.Kinds {
		var kind compare.Kind
		if kind.UnmarshalText([]byte(k.Kind)) == nil && kind != compare.KindMatch && kind != compare.KindUnexplained {
			add(k.Kind, "kind", k.Rate)
		}
	}
	return bars
}

// RateLimit is where the limit of the unexplained rate is drawn.
func (p page) RateLimit() float64 { return rateX(p.Limits.UnexplainedRate) }

// RateHeight is the height of the drawing of rates.
func (p page) RateHeight() float64 { return float64(34 + 24*len(p.Rates)) }

// RateTicks are the axis of the drawing of rates.
func (p page) RateTicks() (ticks []tick) {
	for e := rateLeast; e <= 0; e++ {
		text := fmt.Sprintf("10⁻%s", string([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹")[-e]))
		if e == 0 {
			text = "1"
		}
		ticks = append(ticks, tick{X: rateX(math.Pow(10, float64(e))), Y: p.RateHeight() - 4, Text: text})
	}
	return ticks
}
