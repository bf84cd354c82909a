package advise

import (
	"fmt"
	"strings"
	"time"

	"holdover/internal/bench"
)

// Add fills in what a bench run measured and n does not know, or knew only a
// bound of. It returns what it took, for Advice.Sources.
func (n *Numbers) Add(r bench.Report) string {
	var took []string
	for _, one := range append([]bench.Report{r}, r.Reports...) {
		if row := one.SingleRow; row != nil && row.HoldMs > 0 && (n.RowHold == 0 || n.RowHoldIsBound) {
			n.RowHold, n.RowHoldIsBound = time.Duration(row.HoldMs*float64(time.Millisecond)), false
			took = append(took, "the row's hold time")
		}
		if one.Scenario != "hot" {
			continue
		}
		for _, way := range one.Competitors {
			switch {
			case way.Name == "holdover" && way.HoldUs > 0 && n.HoldAfter == 0:
				n.HoldAfter = time.Duration(way.HoldUs * float64(time.Microsecond))
				took = append(took, "the pool's hold time")
			case way.Name == "conditional_batched" && n.BatchedRow == 0:
				n.BatchedRow = way.OpsPerS
				took = append(took, "the rate of a combined UPDATE")
			}
		}
	}
	if len(took) == 0 {
		return ""
	}
	return fmt.Sprintf("%s by `holdover bench %s` (MySQL %s, round trip %s)", strings.Join(took, ", "), r.Scenario, r.MySQLVersion, span(time.Duration(r.RTTus*float64(time.Microsecond))))
}
