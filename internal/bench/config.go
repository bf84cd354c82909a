package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/internal/workload"
)

// Config says what to measure. A zero field means the default of the scenario.
type Config struct {
	// Scenario is one of Scenarios. Required.
	Scenario string
	// Clients is how many callers there are at once; 256; in drain 200, in carts
	// 64; lone has one, locks and growth name theirs.
	Clients int
	// Duration is the measured time of the whole scenario, shared by all turns;
	// 30 s or what the scenario needs. Warm-ups and checks come on top.
	Duration time.Duration
	// Rounds is how often each competitor has its turn; 3.
	Rounds int
	// Stock is how many units each item has at the start of a turn: 1,000 in
	// drain, more than can be sold elsewhere.
	Stock int64
	// Cap bounds the unit rows of an item; 1,000. In drain 10, 100 and 1,000 in
	// turn, or this one.
	Cap int64
	// Connections is how many connections to MySQL holdover gets; 6. Others get
	// the number that is best for them.
	Connections int
	// Rate is how many buyers (in mysql: calls) come a second in the open loops of
	// kill, shadow and mysql; 100 in kill, in the others a tenth of what the slower
	// store can do.
	Rate float64
	// Instances is how many processes serve the pod in kill; 8.
	Instances int
	// Hang is how long MySQL hangs in shadow, once in each stage; 15 s.
	Hang time.Duration
	// Program is the holdover binary, which kill and shadow run. Required by them.
	Program string
	// Baskets are the carts of the scenario carts; made up when nil.
	Baskets []workload.Basket
	// MySQLDSN and RedisAddr are servers of the user's own; started when empty.
	// A new schema is made there and dropped in the end, and keys get a prefix
	// of their own.
	MySQLDSN  string
	RedisAddr string
	// Profile receives a CPU profile of holdover's last turn in hot, uniform or
	// lifecycle; none when nil.
	Profile io.Writer
	// Progress receives a line for each turn; nothing when nil.
	Progress io.Writer
}

type scenario struct {
	name string
	run  func(*run) error
}

// scenarios in the order in which all runs them.
var scenarios = []scenario{
	{"hot", (*run).hot},
	{"uniform", (*run).uniform},
	{"drain", (*run).drain},
	{"carts", (*run).carts},
	{"lifecycle", (*run).lifecycle},
	{"lone", (*run).lone},
	{"purge", (*run).purge},
	{"rtt", (*run).rtt},
	{"growth", (*run).growth},
	{"locks", (*run).locks},
	{"mysql", (*run).mysql},
	{"shadow", (*run).shadow},
	{"kill", (*run).kill},
}

// Scenarios lists the names, "all" last.
func Scenarios() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return append(names, "all")
}

// Validate says whether Run would accept the configuration.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) withDefaults() (Config, error) {
	bad := func(field string, value any, problem string) error {
		return &holdover.InvalidError{Field: "bench " + field, Value: fmt.Sprint(value), Problem: problem}
	}
	if !slices.Contains(Scenarios(), c.Scenario) {
		return c, bad("scenario", c.Scenario, "must be one of "+strings.Join(Scenarios(), ", "))
	}
	if c.Rounds == 0 {
		c.Rounds = 3
	}
	if c.Connections == 0 {
		c.Connections = 6
	}
	if c.Instances == 0 {
		c.Instances = 8
	}
	if c.Hang == 0 {
		c.Hang = 15 * time.Second
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	switch {
	case c.Clients < 0 || c.Clients > 10_000:
		return c, bad("clients", c.Clients, "must be from 1 to 10,000")
	case c.Duration < 0 || c.Duration > time.Hour:
		return c, bad("duration", c.Duration, "must be positive, and an hour at most")
	case c.Rounds < 1 || c.Rounds > 100:
		return c, bad("rounds", c.Rounds, "must be from 1 to 100")
	case c.Stock < 0 || c.Stock > 1e12:
		return c, bad("stock", c.Stock, "must be from 1 to 10^12")
	case c.Stock > 1e6 && (c.Scenario == "drain" || c.Scenario == "all"):
		return c, bad("stock", c.Stock, "must be a million at most where it is sold out")
	case c.Cap < 0 || c.Cap > 100_000:
		return c, bad("cap", c.Cap, "must be from 1 to 100,000")
	case !(c.Rate >= 0 && c.Rate <= 100_000):
		return c, bad("rate", c.Rate, "must be from 1 to 100,000 a second")
	case c.Instances < 1 || c.Instances > 100:
		return c, bad("instances", c.Instances, "must be from 1 to 100")
	case c.Hang < time.Second || c.Hang > time.Hour:
		return c, bad("hang", c.Hang, "must be from a second to an hour")
	case c.Program == "" && (c.Scenario == "kill" || c.Scenario == "shadow" || c.Scenario == "all"):
		return c, bad("program", c.Program, "must be the path of the holdover binary: this scenario runs it")
	case c.Connections < 1 || c.Connections > 1000:
		return c, bad("connections", c.Connections, "must be from 1 to 1,000")
	}
	return c, nil
}
