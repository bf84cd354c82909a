package report

import (
	"fmt"
	"strconv"
	"time"
)

// percent writes a share and never rounds a part to all or to nothing.
func percent(share float64) string {
	switch p := 100 * share; {
	case p == 0:
		return "0 %"
	case p == 100:
		return "100 %"
	case p < 0.0001:
		return "< 0.0001 %"
	case p < 1:
		return strconv.FormatFloat(p, 'g', 3, 64) + " %"
	case p > 99.99:
		return "> 99.99 %"
	default:
		return fmt.Sprintf("%.2f %%", p)
	}
}

// micros writes a time given in microseconds with three digits or more.
func micros(us float64) string {
	switch abs := max(us, -us); {
	case us == 0:
		return "0"
	case abs >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case abs >= 10_000:
		return fmt.Sprintf("%.1f ms", us/1e3)
	case abs >= 1000:
		return fmt.Sprintf("%.2f ms", us/1e3)
	case abs >= 10:
		return fmt.Sprintf("%.1f µs", us)
	default:
		return fmt.Sprintf("%.3f µs", us)
	}
}

// seconds writes a stretch of time given in seconds.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// quantile writes a quantile with its interval; an open end is a dash.
func quantile(q Quantile) string {
	if q.Low == nil && q.High == nil {
		return micros(q.Value) + " (too few)"
	}
	end := func(v *float64) string {
		if v == nil {
			return "–"
		}
		return micros(*v)
	}
	return fmt.Sprintf("%s (%s to %s)", micros(q.Value), end(q.Low), end(q.High))
}

// figure writes a gate's value or threshold in its unit.
func (g Gate) figure(v float64) string {
	switch g.Unit {
	case unitShare:
		return percent(v)
	case unitSeconds:
		return seconds(v)
	default:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
}

// limit writes a gate's threshold with the side that is good.
func (g Gate) limit() string {
	sign := "≤ "
	if g.Name == "exercised" || g.Unit == unitShare && g.Name != "unexplained-rate" {
		sign = "≥ "
	}
	return sign + g.figure(g.Threshold)
}

// word is what a gate came to, for a person.
func (g Gate) word() string {
	if g.Waived {
		return string(g.Verdict) + " (waived)"
	}
	return string(g.Verdict)
}
