package mysqlpool

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"holdover"
)

// BenchmarkHotItem is 256 callers who reserve, or reserve and claim, units of
// one item, with the refill running: on the real server, durable settings.
// `holdover bench hot` compares it with other ways.
func BenchmarkHotItem(b *testing.B) {
	for _, mode := range []struct {
		name  string
		claim bool
	}{{"reserve", false}, {"reserve and claim", true}} {
		b.Run(mode.name, func(b *testing.B) {
			f := newFixture(b, func(c *Config) { c.MaxOpenConns = 6 })
			f.load(b, 1, 1, 1<<40)
			ctx, stop := context.WithCancel(b.Context())
			var background, callers sync.WaitGroup
			background.Go(func() { _ = f.Run(ctx) })
			one := line(1, 1, 1)
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ReportAllocs()
			b.ResetTimer()
			for range 256 {
				callers.Go(func() {
					for left.Add(-1) >= 0 {
						r := request(one)
						_, err := f.Vote(ctx, alone, r, false)
						if err == nil && mode.claim {
							var h holdover.Hold
							h, err = f.Claim(ctx, 0, shop, r.Token, nil, false)
							if h.State != holdover.StateClaimed {
								b.Errorf("%+v", h)
							}
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			callers.Wait()
			b.StopTimer()
			stop()
			background.Wait()
			line := ""
			for _, name := range []string{"Com_commit", "Innodb_rows_read", "Innodb_rows_inserted", "Innodb_rows_deleted", "Innodb_rows_updated", "Innodb_os_log_fsyncs", "Questions", "Innodb_row_lock_waits"} {
				var n string
				var v float64
				_ = f.db.QueryRow("SHOW GLOBAL STATUS LIKE '"+name+"'").Scan(&n, &v)
				line += fmt.Sprintf("%s %.3f ", n, v/float64(b.N))
			}
			b.Log(line)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			st := f.Stats()
			b.Logf("refills %d of %d rows, short %d, decisive %d, split %d, retries %d", st.Refills, st.Refilled, st.Short, st.Decisive, st.Split, st.Retries)
		})
	}
}
