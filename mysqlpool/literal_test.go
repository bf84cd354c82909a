package mysqlpool

import (
	"testing"
	"time"

	"holdover"
)

// TestLiterals: what add writes is what the server reads, whatever a text
// contains, on either dialect; and it costs no allocation.
func TestLiterals(t *testing.T) {
	f := newFixture(t)
	token := holdover.NewToken()
	at := time.Date(2026, 2, 28, 23, 59, 59, 123_456_000, time.UTC)
	for _, text := range []string{"", "held", "it's", `\' OR 1=1 -- ?`, "ein Grund: Überverkauf ☠", "a\x00b\n"} {
		var gotText string
		var gotToken []byte
		var a, b, c, flag int64
		var u uint64
		var when time.Time
		q := new(statement).add("SELECT ?, ?, ?, ?, ?, ?, ?, CAST(? AS DATETIME(6))", text, token[:], -1, int64(1)<<62, int64(-7), true, ^uint64(0), at)
		if len(q.args) != 0 {
			t.Fatalf("left to the driver: %v", q.args)
		}
		if err := f.db.QueryRowContext(t.Context(), q.String()).Scan(&gotText, &gotToken, &a, &b, &c, &flag, &u, &when); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if gotText != text || string(gotToken) != string(token[:]) || a != -1 || b != 1<<62 || c != -7 || flag != 1 || u != ^uint64(0) || !when.Equal(at) {
			t.Errorf("%q: %q %x %d %d %d %d %d %s", text, gotText, gotToken, a, b, c, flag, u, when)
		}
	}
	q := new(statement)
	q.Grow(1 << 20)
	h := holdover.Hold{Token: token, Attempt: 1 << 63}
	if n := testing.AllocsPerRun(100, func() { q.add("(?, ?, ?, ?)", h.Token[:], 1000, uint64(h.Attempt), at) }); n != 0 {
		t.Errorf("%.1f allocations for a row", n)
	}
}
