package mysqlpool

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdover"
	"holdover/internal/workload"
)

// BenchmarkHotItem is 256 callers who reserve, or reserve and claim, units of
// one item, with the refill running: on the real server, durable settings.
// `holdover bench hot` compares it with other ways.
func BenchmarkHotItem(b *testing.B) {
	one := func(int) holdover.Request { return request(line(1, 1, 1)) }
	b.Run("reserve", func(b *testing.B) { benchmarkBuyers(b, 256, 1, false, one) })
	b.Run("reserve and claim", func(b *testing.B) { benchmarkBuyers(b, 256, 1, true, one) })
}

// BenchmarkCarts is 64 callers who reserve carts, made like real ones, of one
// unit of each of 17 items on average.
func BenchmarkCarts(b *testing.B) {
	g := workload.NewGenerator(workload.GeneratorConfig{Seed: 1})
	var carts [][]holdover.Line
	items := map[int64]int64{}
	for n := range uint64(4000) {
		var lines []holdover.Line
		for _, item := range g.Basket(n).Items {
			if items[item] == 0 {
				items[item] = int64(len(items) + 1)
			}
			lines = append(lines, line(items[item], 1, 1))
		}
		carts = append(carts, lines)
	}
	benchmarkBuyers(b, 64, len(items), false, func(n int) holdover.Request {
		r, err := request(carts[n%len(carts)]...).Normalize(holdover.Limits{})
		if err != nil {
			b.Error(err)
		}
		return r
	})
}

// benchmarkBuyers reports, besides the rate, the processor time that a call
// costs here and in the server: on a machine that both share, their sum is what
// bounds the rate.
func benchmarkBuyers(b *testing.B, callers, items int, claim bool, buy func(n int) holdover.Request) {
	f := newFixture(b, func(c *Config) { c.MaxOpenConns = 6 })
	var stock []StockRow
	for item := range int64(items) {
		stock = append(stock, StockRow{shop, item + 1, 1, 1 << 40})
	}
	if _, err := f.ImportStock(b.Context(), stock); err != nil {
		b.Fatal(err)
	}
	if err := f.WarmUp(b.Context()); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var background, all sync.WaitGroup
	background.Go(func() { _ = f.Run(ctx) })
	var left atomic.Int64
	left.Store(int64(b.N))
	server, client := f.serverTime(b), clientTime(b)
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		all.Go(func() {
			for {
				n := left.Add(-1)
				if n < 0 {
					return
				}
				r := buy(int(n))
				_, err := f.Vote(ctx, alone, r, false)
				if err == nil && claim {
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
	all.Wait()
	b.StopTimer()
	perCall := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(b.N) }
	b.ReportMetric(perCall(f.serverTime(b)-server), "server-µs/op")
	b.ReportMetric(perCall(clientTime(b)-client), "client-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	stop()
	background.Wait()
	st := f.Stats()
	b.Logf("refills %d of %d rows, short %d, decisive %d, split %d, retries %d", st.Refills, st.Refilled, st.Short, st.Decisive, st.Split, st.Retries)
}

// clientTime is the processor time of this process so far.
func clientTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// serverTime is the server's, in hundredths of a second.
func (f *fixture) serverTime(b *testing.B) time.Duration {
	b.Helper()
	var file string
	if err := f.db.QueryRow("SELECT @@pid_file").Scan(&file); err != nil {
		b.Fatal(err)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strings.TrimSpace(string(pid))))
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the command's name may have blanks
	fields := strings.Fields(after)
	var ticks int64
	for _, field := range fields[11:13] { // user and system
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
