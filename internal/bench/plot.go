package bench

import (
	"fmt"
	"math"
	"strings"
)

// The text plots: bars for a comparison, a field of characters for a curve.
const (
	barWidth   = 50
	plotWidth  = 60
	plotHeight = 12
)

// isBars: every series is one point, a bar each.
func (c Curve) isBars() bool {
	for _, s := range c.Series {
		if len(s.Points) != 1 {
			return false
		}
	}
	return true
}

// bars makes the plot of the scenarios that compare rates.
func (r *run) bars(all map[string]*standing, what string) {
	c := Curve{Name: what, X: "way", Y: "reserves/s"}
	for i, name := range wayOrder {
		if s := all[name]; s != nil {
			c.Series = append(c.Series, Series{Name: name, Points: []Point{{X: float64(i), Y: s.ops()}}})
		}
	}
	r.report.Curves = append(r.report.Curves, c)
}

func (c Curve) writeText(out *printer) {
	out.printf("%s (%s)\n", c.Name, c.Y)
	if c.isBars() {
		c.writeBars(out)
	} else {
		c.writeField(out)
	}
}

func (c Curve) writeBars(out *printer) {
	_, most := c.rangeY()
	for _, s := range c.Series {
		v := s.Points[0].Y
		length := 0
		if most > 0 {
			length = int(math.Round(barWidth * v / most))
		}
		out.printf("  %-22s %s %.0f\n", s.Name, strings.Repeat("#", length), v)
	}
}

// scale maps values to 0..1.
type scale struct {
	low, high float64
	log       bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		low, high, v = math.Log(low), math.Log(high), math.Log(max(v, s.low))
	}
	if high <= low {
		return 0.5
	}
	return min(1, max(0, (v-low)/(high-low)))
}

func (c Curve) writeField(out *printer) {
	x, y := c.scaleX(), c.scaleY()
	field := make([][]byte, plotHeight)
	for i := range field {
		field[i] = []byte(strings.Repeat(" ", plotWidth))
	}
	var legend []string
	for i, s := range c.Series {
		mark := byte('a' + i%26)
		legend = append(legend, fmt.Sprintf("%c %s", mark, s.Name))
		for _, p := range s.Points {
			row := plotHeight - 1 - int(math.Round(y.at(p.Y)*(plotHeight-1)))
			at := int(math.Round(x.at(p.X) * (plotWidth - 1)))
			if field[row][at] != ' ' && field[row][at] != mark {
				field[row][at] = '*' // several
				continue
			}
			field[row][at] = mark
		}
	}
	for i, line := range field {
		label := ""
		switch i {
		case 0:
			label = short(y.high)
		case plotHeight - 1:
			label = short(y.low)
		}
		out.printf("  %8s |%s\n", label, strings.TrimRight(string(line), " "))
	}
	out.printf("  %8s +%s\n", "", strings.Repeat("-", plotWidth))
	left, right := short(x.low), short(x.high)
	out.printf("  %8s  %s%*s  %s\n", "", left, plotWidth-len(left), right, c.X)
	out.printf("  %8s  %s\n", "", strings.Join(legend, ", "))
}

func (c Curve) scaleX() scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1), log: c.LogX}
	for _, one := range c.Series {
		for _, p := range one.Points {
			s.low, s.high = min(s.low, p.X), max(s.high, p.X)
		}
	}
	return s
}

func (c Curve) scaleY() scale {
	s := scale{log: c.LogY}
	s.low, s.high = c.rangeY()
	if !c.LogY {
		s.low = 0
	}
	return s
}

// rangeY is the range of the values; of those above zero on a logarithmic axis.
func (c Curve) rangeY() (low, high float64) {
	low = math.Inf(1)
	for _, s := range c.Series {
		for _, p := range s.Points {
			if c.LogY && p.Y <= 0 {
				continue
			}
			low, high = min(low, p.Y), max(high, p.Y)
		}
	}
	if math.IsInf(low, 1) { // nothing to show
		return 1, 1
	}
	return low, high
}

// short writes a number in few characters: 1200 as 1.2k.
func short(v float64) string {
	switch {
	case math.Abs(v) >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case math.Abs(v) >= 1e3:
		return fmt.Sprintf("%.3gk", v/1e3)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}
