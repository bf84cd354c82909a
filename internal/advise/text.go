package advise

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Text is the advice as a paragraph, and the open questions below it.
func (a Advice) Text() string {
	var b strings.Builder
	switch a.Verdict {
	case Migrate:
		b.WriteString("Migrate.")
	case Dont:
		b.WriteString("Don't migrate.")
	default:
		b.WriteString("It depends.")
	}
	for _, reason := range a.Reasons {
		b.WriteString(" " + reason)
	}
	b.WriteString("\n")
	if len(a.Questions) > 0 {
		heading := "No metric answers these:"
		if a.Verdict == Dont {
			heading = "No metric answers these, and no answer would make it a yes:"
		}
		b.WriteString("\n" + heading + "\n")
		for _, q := range a.Questions {
			b.WriteString("  - " + q + "\n")
		}
	}
	if len(a.Sources) > 0 {
		b.WriteString("\nFrom " + strings.Join(a.Sources, "; ") + ".\n")
	}
	return b.String()
}

func (a *Advice) say(format string, args ...any) {
	a.Reasons = append(a.Reasons, fmt.Sprintf(format, args...))
}

// rounded keeps three digits of precision: more would be a claim.
func rounded(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	return math.Round(v/unit) * unit
}

// count writes a number with commas between thousands.
func count(v float64) string {
	v = rounded(v)
	if v < 100 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func percent(share float64) string { return count(100*share) + " %" }

func span(d time.Duration) string {
	if d < time.Second {
		return count(d.Seconds()*1000) + " ms"
	}
	return count(d.Seconds()) + " s"
}

// connections are whole ones, and a fraction of one is said to be that.
func connections(c float64) string {
	if c < 1 {
		return "less than 1"
	}
	return count(math.Ceil(rounded(c)))
}
