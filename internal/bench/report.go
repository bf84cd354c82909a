package bench

// Report is what a run found: what `holdover bench --json` prints, and what
// `holdover advise` reads. Fields that a scenario does not measure are absent.
type Report struct {
	Scenario string  `json:"scenario"`
	OK       bool    `json:"ok"`       // no invariant is broken; targets don't matter here
	Clients  int     `json:"clients"`  // concurrent callers
	Rounds   int     `json:"rounds"`   // how often each competitor had its turn; figures are medians over them
	SlotS    float64 `json:"slot_s"`   // measured seconds of one turn, without its warm-up
	Stock    int64   `json:"stock"`    // units of one item at the start of a turn
	PoolCap  int64   `json:"pool_cap"` // unit rows of one item
	Seconds  float64 `json:"seconds"`  // the whole run, servers included

	MySQLVersion string     `json:"mysql_version"`
	RedisVersion string     `json:"redis_version"`
	Durability   Durability `json:"durability"`
	RTTus        float64    `json:"rtt_us"`       // median round trip to MySQL (SELECT 1 on one connection), nothing injected
	RedisRTTus   float64    `json:"redis_rtt_us"` // median round trip to Redis (PING)
	Machine      Machine    `json:"machine"`

	Competitors []Competitor `json:"competitors"`

	// Ratios, by the names of the targets. Each is the median over the rounds
	// of holdover's figure by the other's in the same round.
	VsUsual       *float64 `json:"vs_usual,omitempty"`       // reserves a second, against unit rows in one transaction a call at its best number of connections
	VsUncapped    *float64 `json:"vs_uncapped,omitempty"`    // the same with a connection for every client
	VsConditional *float64 `json:"vs_conditional,omitempty"` // against the fastest form of the conditional UPDATE that does not batch
	VsBatchedRow  *float64 `json:"vs_batched_row,omitempty"` // against conditional_batched
	VsRedis       *float64 `json:"vs_redis,omitempty"`       // against the Redis path
	VsRedisBare   *float64 `json:"vs_redis_bare,omitempty"`  // against a minimal script, pipelined
	VsLegacy      *float64 `json:"vs_legacy,omitempty"`      // reserve + claim, against Redis + one ledger UPDATE
	P99VsLegacy   *float64 `json:"p99_vs_legacy,omitempty"`  // p99 of reserve + claim against legacy's
	P50VsFloor    *float64 `json:"p50_vs_floor,omitempty"`   // p50 of a lone reserve against one autocommit INSERT
	PurgeBlocked  *float64 `json:"purge_blocked_ratio,omitempty"`
	PurgeEnd      *float64 `json:"purge_blocked_end_ratio,omitempty"` // the last fifth of the blocked phase against unblocked
	VsPerLine     *float64 `json:"vs_per_line,omitempty"`             // carts a second, against the fastest of the ways with a statement for each line
	VsUnion       *float64 `json:"vs_union,omitempty"`                // carts a second, against one transaction a cart with UNION ALL

	// shadow: a buyer's reserve and release over HTTP, open loop. Medians over
	// the rounds of stage shadow's figure by stage redis's in the same round;
	// aa_: of redis by redis, what the method itself can't tell apart.
	P50Ratio   *float64 `json:"p50_ratio,omitempty"`
	P99Ratio   *float64 `json:"p99_ratio,omitempty"`
	AAP50Ratio *float64 `json:"aa_p50_ratio,omitempty"`
	AAP99Ratio *float64 `json:"aa_p99_ratio,omitempty"`
	// With MySQL hung: shadow's reserves and releases then, by what they are in
	// redis with MySQL hung; hung_open_p99_ratio: by shadow's own with MySQL well.
	HungP50Ratio  *float64 `json:"hung_p50_ratio,omitempty"`
	HungP99Ratio  *float64 `json:"hung_p99_ratio,omitempty"`
	HungOpenP99   *float64 `json:"hung_open_p99_ratio,omitempty"`
	HangS         *float64 `json:"hang_s,omitempty"`         // for how long MySQL hung, once in each of the two stages
	RSSGrowth     *float64 `json:"rss_growth_mib,omitempty"` // most memory in use of the serving process while MySQL hung in shadow, over what it was before
	RSSGrowthBase *float64 `json:"rss_growth_redis_mib,omitempty"`
	HungClaims    []Claims `json:"hung_claims,omitempty"` // what became of the claims of that time

	// mysql: stage mysql by the pool alone, of reserves in an open loop.
	MySQLP50 *float64 `json:"mysql_p50_ratio,omitempty"`
	MySQLP99 *float64 `json:"mysql_p99_ratio,omitempty"`
	// Where the median of that lies, from many pairs of turns; a note says how sure it is.
	MySQLP99Low  *float64 `json:"mysql_p99_ratio_low,omitempty"`
	MySQLP99High *float64 `json:"mysql_p99_ratio_high,omitempty"`

	// kill: ms from the start of a `holdover kill` process until the last
	// instance had acknowledged; call: of the same by the library; idle: of the
	// process without buyers. Each kill is in Kills.
	KillP50     *float64 `json:"kill_p50_ms,omitempty"`
	KillP99     *float64 `json:"kill_p99_ms,omitempty"`
	KillMax     *float64 `json:"kill_max_ms,omitempty"`
	KillCallP50 *float64 `json:"kill_call_p50_ms,omitempty"`
	KillCallP99 *float64 `json:"kill_call_p99_ms,omitempty"`
	KillIdleP50 *float64 `json:"kill_idle_p50_ms,omitempty"`
	KillIdleP99 *float64 `json:"kill_idle_p99_ms,omitempty"`
	BuyerErrors *int64   `json:"buyer_errors,omitempty"` // answers other than 201, 200 and 409 out-of-stock, from before the first kill to after the last way back
	// Of them, those of calls that were under way between a kill's beginning and a
	// second after the last acknowledgement: a kill's doing.
	BuyerErrorsAtKills *int64 `json:"buyer_errors_at_kills,omitempty"`

	// The share of the cores' time that was idle, of 1: with the buyers of the kills
	// under load and nothing else, and during those kills.
	IdleBuyers *float64 `json:"cpu_idle_buyers,omitempty"`
	IdleKills  *float64 `json:"cpu_idle_kills,omitempty"`

	BuyerCalls *int64 `json:"buyer_calls,omitempty"`
	Instances  *int64 `json:"instances,omitempty"`
	Carried    *int64 `json:"carried,omitempty"` // facts of MySQL's journal that the kills carried into Redis
	Kills      []Kill `json:"kills,omitempty"`

	RatePerS *float64 `json:"rate_per_s,omitempty"` // open loops: buyers a second, or calls in mysql

	// Of holdover alone. Counts are summed over all turns.
	Connections  *int64 `json:"connections,omitempty"`    // most connections that the server saw at once
	Granted      *int64 `json:"granted,omitempty"`        // drain: grants of one turn; of the worst turn, if they differ
	FalseSoldOut *int64 `json:"false_sold_out,omitempty"` // refusals while stock remained
	Oversold     *int64 `json:"oversold,omitempty"`       // units
	Deadlocks    *int64 `json:"deadlocks,omitempty"`      // by the server's count

	Exponents    []Exponent `json:"exponents,omitempty"`     // growth: how the time for a reserve grows
	HistoryList  []int64    `json:"history_list,omitempty"`  // purge: history list length at the end of each phase
	ConflictRate *float64   `json:"conflict_rate,omitempty"` // locks: conflicts by attempts of the version compare-and-set at the given clients and one item
	ConflictBand string     `json:"conflict_band,omitempty"` // locks: what S61 advises at that rate
	SingleRow    *Threshold `json:"single_row,omitempty"`    // hot, rtt, locks: how far one row goes

	Curves  []Curve  `json:"curves,omitempty"`
	Targets []Target `json:"targets,omitempty"`
	Loses   []string `json:"loses"`            // the cases of this run where a simpler way wins, a sentence each
	Shown   []Shown  `json:"shown,omitempty"`  // locks, carts: known faults, provoked
	Broken  []string `json:"broken,omitempty"` // broken invariants, a sentence each
	Notes   []string `json:"notes,omitempty"`  // how something was measured, and what disturbed it

	Reports []Report `json:"reports,omitempty"` // all: one for each scenario
}

// Competitor is how one way fared in one case. Rates and latencies are medians
// over the rounds; counts are sums over them.
type Competitor struct {
	Name      string  `json:"name"`           // a name of Ways
	Case      string  `json:"case,omitempty"` // in scenarios with several, like "rtt=3ms" or "clients=64,items=1"
	OpsPerS   float64 `json:"ops_per_s"`      // calls that were granted, a second
	P50us     float64 `json:"p50_us"`         // closed loop: from the call to its answer, of calls that began in the measured time
	P99us     float64 `json:"p99_us"`
	P999us    float64 `json:"p999_us"`
	ConnHoldS float64 `json:"conn_hold_s"` // for how long buyers' MySQL connections were taken in the measured time of a turn, summed over them
	HoldUs    float64 `json:"hold_us"`     // conn_hold_s by granted calls, in µs: what Little's law wants

	Connections int64 `json:"connections"` // most that MySQL saw at once, background work included
	RedisConns  int64 `json:"redis_connections,omitempty"`
	Calls       int64 `json:"calls"`              // by callers
	Granted     int64 `json:"granted"`            // what callers were told
	Refused     int64 `json:"refused"`            // sold out, callers were told
	Failed      int64 `json:"failed,omitempty"`   // neither: gave up after the bounded number of tries
	Attempts    int64 `json:"attempts"`           // tries at the store, retries included
	Conflicts   int64 `json:"conflicts"`          // tries that were lost to somebody else (zero rows, deadlock, lock wait) and tried again
	Deadlocks   int64 `json:"deadlocks"`          // by the server's count
	LockWaits   int64 `json:"lock_waits"`         // row lock waits that began, by the server's count
	Timeouts    int64 `json:"timeouts,omitempty"` // row lock waits that ran out, by the callers' errors

	FalseSoldOut int64 `json:"false_sold_out"` // see truth.go
	Oversold     int64 `json:"oversold"`       // units that callers were granted beyond the stock
	LostHolds    int64 `json:"lost_holds"`     // grants without a hold in the store
	Honest       bool  `json:"honest"`         // false: wrong on purpose
}

// Target is a figure to reach.
type Target struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Rule   string  `json:"rule"` // ">=", "<=" or "="
	Target float64 `json:"target"`
	Aim    float64 `json:"aim,omitempty"` // what to hope for
	OK     bool    `json:"ok"`
}

// Durability is what the servers promise after an answer.
type Durability struct {
	SyncBinlog  string `json:"sync_binlog"`
	FlushLog    string `json:"innodb_flush_log_at_trx_commit"`
	LogBin      string `json:"log_bin"`
	AppendOnly  string `json:"redis_appendonly"`
	AppendFsync string `json:"redis_appendfsync"`
}

// Machine is where the run took place. The servers are elsewhere when they are
// the user's own.
type Machine struct {
	CPU       string `json:"cpu"`
	Cores     int    `json:"cores"`
	MemoryMB  int64  `json:"memory_mb"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
	OwnServer bool   `json:"servers_here"` // the run started the servers, on this machine
}

// Curve is a plot: some figure over another.
type Curve struct {
	Name   string   `json:"name"`
	X      string   `json:"x"` // what the axis shows, with its unit
	Y      string   `json:"y"`
	LogX   bool     `json:"log_x,omitempty"`
	LogY   bool     `json:"log_y,omitempty"`
	Series []Series `json:"series"`
}

// Series is one line of a plot.
type Series struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is one measurement of a series.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// Exponent is the slope of a straight line through a curve whose axes are both
// logarithmic: 0 is no growth, 1 is twice the time for twice as much.
type Exponent struct {
	Of       string  `json:"of"` // competitor
	Over     string  `json:"over"`
	Exponent float64 `json:"exponent"`
	R2       float64 `json:"r2"` // share of the variance that the line explains
}

// Threshold is how far the single row goes.
type Threshold struct {
	HoldMs   float64 `json:"hold_ms"`   // 1 / its peak rate on one item: how long the row's lock is taken
	PeakRate float64 `json:"peak_rate"` // reserves a second of the fastest unbatched form on one item
	UpToMs   float64 `json:"up_to_ms"`  // rtt: the round trip up to which it still reaches half of holdover's rate; -1: at none of those measured
	BeatenBy string  `json:"beaten_by"` // the way compared with
	AtFactor float64 `json:"by_factor"` // how many times its rate that way has, nothing injected
	InWords  string  `json:"in_words"`  // one sentence
}

// Shown is a known fault, provoked.
type Shown struct {
	Fault    string `json:"fault"`
	Observed string `json:"observed"` // what happened, with figures
	OK       bool   `json:"shown"`    // it happened
}

// Kill is one kill, in milliseconds from its beginning.
type Kill struct {
	Way       string             `json:"way"`        // command: a process; call: the library in this process
	Load      bool               `json:"load"`       // buyers were there
	AckMs     float64            `json:"ack_ms"`     // the last instance's acknowledgement was there
	StartMs   float64            `json:"start_ms"`   // of that, until the trip began: the process's start and its connections
	TripMs    float64            `json:"trip_ms"`    // the trip: both fences read and written
	Steps     map[string]float64 `json:"steps_ms"`   // of the trip: its calls by name
	SpreadMs  float64            `json:"spread_ms"`  // from the trip's end to the last acknowledgement
	DoneMs    float64            `json:"done_ms"`    // the command had ended, or the call returned
	ForwardMs float64            `json:"forward_ms"` // from the restore until the pod was in mysql again, through joint
	Carried   int                `json:"carried"`
	Presses   int                `json:"presses"` // more than one: it failed, and was pressed again
}

// Claims are what became of claims that were made while MySQL hung.
type Claims struct {
	Stage   string           `json:"stage"`
	Answers map[string]int64 `json:"answers"` // what buyers were told: 202 is pending
	Finally map[string]int64 `json:"finally"` // the holds' states when MySQL was back, by answer and state: "202 claimed"
}
