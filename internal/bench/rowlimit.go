package bench

import "fmt"

// singleRow says how far one stock row goes, next to holdover on the same item.
func (r *run) singleRow(row, h *standing) {
	rate := row.ops()
	by := ratio(h, row, (*sample).opsPerS)
	r.report.SingleRow = &Threshold{
		HoldMs: 1000 / rate, PeakRate: rate, BeatenBy: wayHoldover, AtFactor: by,
		InWords: fmt.Sprintf("One row takes %.0f reserves a second of one item on this server (%s), so its lock is taken for %.2f ms each time. "+
			"Where the hottest item's peak stays well below that, the single row is enough.", rate, row.name, 1000/rate),
	}
}
