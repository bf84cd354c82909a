package torture

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"holdover"
)

// Fault is a kind of failure.
type Fault string

// The faults. Those of connections have a store, and one instance or all.
const (
	KillInstance  Fault = "kill-instance"        // SIGKILL, and a new start
	PauseInstance Fault = "pause-instance"       // SIGSTOP, SIGCONT
	KillMySQL     Fault = "kill-mysql"           // SIGKILL, and a new start with its data
	PauseMySQL    Fault = "pause-mysql"          // SIGSTOP, SIGCONT
	KillRedis     Fault = "kill-redis"           // SIGKILL, and a new start with its data
	PauseRedis    Fault = "pause-redis"          // SIGSTOP, SIGCONT
	LoseRedis     Fault = "lose-redis"           // SIGKILL, and a new start without its data
	Cut           Fault = "cut"                  // connections end, and new ones are refused
	CutOnce       Fault = "cut-once"             // connections end, new ones work
	Slow          Fault = "delay"                // every piece takes longer
	HalfOpen      Fault = "half-open"            // nothing passes, and nobody is told
	LostReplies   Fault = "lost-replies"         // requests pass, replies vanish
	LostReply     Fault = "lost-reply"           // some replies vanish together with their connections
	LateRequests  Fault = "late-requests"        // requests wait, and are carried out after the fault
	LockWait      Fault = "lock-wait"            // somebody keeps the rows of the hot items locked
	Connections   Fault = "too-many-connections" // 1040
	ReadOnly      Fault = "read-only"            // MySQL takes no writes
	ClientPause   Fault = "client-pause"         // CLIENT PAUSE
	FlagGone      Fault = "flag-gone"            // the flag file is moved away
	NoFault       Fault = "none"
)

// What an operator does.
const (
	doKill    = "kill"
	doRestore = "restore"
	doFlag    = "flag"
	doRetire  = "retire" // Redis, which nobody asks for a while, and come back to it
)

// Action is one thing that happens at its time.
type Action struct {
	At    time.Duration
	Fault Fault         // or
	Do    string        // kill, restore, flag, retire
	For   time.Duration // of a fault, or without Redis
	Who   int           // instance, from 0; everybody: all of them, and the operator's wires
	Store holdover.Store
	Stage holdover.Stage // of a flag
	Many  int            // replies to lose; ms of a delay
}

// Who, when it is no instance.
const (
	everybody     = -1 // all instances, and the operator's wires
	instancesOnly = -2
)

func (a Action) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5d ms  ", a.At.Milliseconds())
	switch {
	case a.Do == doFlag:
		fmt.Fprintf(&b, "flag wants %s", a.Stage)
	case a.Do != "":
		who := "an operator"
		if a.Who >= 0 {
			who = fmt.Sprintf("instance %d", a.Who+1)
		}
		fmt.Fprintf(&b, "%s, through %s", a.Do, who)
	default:
		fmt.Fprintf(&b, "fault %s", a.Fault)
		if a.Store != holdover.StoreNone {
			fmt.Fprintf(&b, " towards %s", a.Store)
		}
		if a.Who >= 0 {
			fmt.Fprintf(&b, " at instance %d", a.Who+1)
		}
		if a.Many > 0 {
			fmt.Fprintf(&b, " (%d)", a.Many)
		}
		fmt.Fprintf(&b, " for %d ms", a.For.Milliseconds())
	}
	return b.String()
}

// Schedule is one trial: where the pod begins, what buyers do, what happens.
type Schedule struct {
	Seed    uint64
	Start   holdover.Stage
	Lasts   time.Duration // of the traffic
	Linear  bool          // a small history for the linearizability checker
	Stock   stockKind     // how much there is
	Actions []Action      // by time
}

func (s Schedule) String() string {
	var b strings.Builder
	kind := ""
	if s.Linear {
		kind = ", a short history"
	}
	fmt.Fprintf(&b, "schedule %d: from %s, %d ms of traffic%s\n", s.Seed, s.Start, s.Lasts.Milliseconds(), kind)
	for _, a := range s.Actions {
		fmt.Fprintf(&b, "  %s\n", a)
	}
	return b.String()
}

// calm is when the last fault is over, from the beginning of the traffic.
func (s Schedule) calm() (at time.Duration) {
	for _, a := range s.Actions {
		if a.Fault != "" {
			at = max(at, a.At+a.For)
		}
	}
	return at
}

// stockKind is how much the shop of a schedule has.
type stockKind uint8

const (
	mixedStock  stockKind = iota
	scarceStock           // few items, of which the last unit is wanted all the time and hardly ever sold
	plentyStock           // nothing ever runs out
)

// fault is the schedule's one fault.
func (s Schedule) fault() Action {
	for _, a := range s.Actions {
		if a.Fault != "" {
			return a
		}
	}
	return Action{Fault: NoFault}
}

// seedOf is the seed of the campaign's n-th schedule. 53 bits: JSON readers
// other than Go's keep it.
func seedOf(campaign uint64, n int) uint64 {
	return rand.New(rand.NewPCG(campaign, uint64(n))).Uint64() >> 11
}

// instances is how many processes serve the pod.
const instances = 3

// Draw makes a schedule from its seed and nothing else. A mutant's name biases
// it towards what that mutant gets wrong.
func Draw(seed uint64, mutant string) Schedule {
	rng := rand.New(rand.NewPCG(seed, 0x746f7274757265))
	s := Schedule{Seed: seed, Lasts: between(rng, 1800, 3000)}
	if aim, ok := aims[mutant]; ok {
		aim(rng, &s)
	} else {
		s.Start = pick(rng, []weighted[holdover.Stage]{
			{holdover.StageMySQL, 48}, {holdover.StageJoint, 18}, {holdover.StageShadow, 24}, {holdover.StageRedis, 10},
		})
		s.Linear = rng.IntN(3) == 0
		fault := drawFault(rng, s.Start)
		s.Actions = append(drawSteps(rng, s, fault), fault)
	}
	if aims[mutant] == nil {
		s.retire()
	}
	slices.SortStableFunc(s.Actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return s
}

// retireTime is how much longer buyers buy when Redis is retired, which a complete
// verification comes before, and asked again.
const retireTime = 6 * time.Second

// retire makes some of the schedules in mysql ones in which an operator retires
// Redis and comes back, in place of other steps. It draws from a source of its own,
// so that the other schedules are what they were before it was thought of.
func (s *Schedule) retire() {
	rng := rand.New(rand.NewPCG(s.Seed, 0x726574697265))
	if s.Start != holdover.StageMySQL || s.Linear || s.fault().Fault == LoseRedis || rng.IntN(10) > 0 {
		return
	}
	s.retires(rng)
}

func (s *Schedule) retires(rng *rand.Rand) {
	s.Lasts += retireTime
	s.Actions = []Action{s.fault(), {At: between(rng, 100, 1500), Do: doRetire, For: between(rng, 300, 1500), Who: everybody}}
}

// drawFault chooses one fault that G1 allows in the stage.
func drawFault(rng *rand.Rand, stage holdover.Stage) Action {
	a := Action{Who: everybody, At: between(rng, 300, 1000), For: between(rng, 200, 1300)}
	a.Fault = pick(rng, []weighted[Fault]{
		{KillInstance, 10}, {PauseInstance, 9}, {KillMySQL, 5}, {PauseMySQL, 7}, {KillRedis, 6}, {PauseRedis, 7},
		{Cut, 9}, {CutOnce, 4}, {Slow, 6}, {HalfOpen, 7}, {LostReplies, 8}, {LostReply, 6}, {LateRequests, 8},
		{LockWait, 5}, {Connections, 3}, {ReadOnly, 4}, {ClientPause, 4}, {FlagGone, 3}, {LoseRedis, 3},
	})
	switch a.Fault {
	case KillInstance, PauseInstance:
		a.Who = rng.IntN(instances)
	case LoseRedis:
		// Losing the truth's own writes is outside of what is promised (G5).
		if stage != holdover.StageMySQL {
			a.Fault = KillRedis
		}
	case Cut, CutOnce, Slow, HalfOpen, LostReplies, LostReply, LateRequests:
		a.Store = pick(rng, []weighted[holdover.Store]{{holdover.StoreRedis, 1}, {holdover.StoreMySQL, 1}})
		if rng.IntN(5) < 3 {
			a.Who = rng.IntN(instances)
		}
		switch a.Fault {
		case Slow:
			a.Many = 2 + rng.IntN(90)
		case LostReply:
			a.Many = 1 + rng.IntN(12)
		}
	}
	return a
}

// drawSteps chooses what the operator does near the fault: a kill, a step of the
// flag, a kill and a restore, two kills.
func drawSteps(rng *rand.Rand, s Schedule, fault Action) []Action {
	near := func() time.Duration {
		return max(100*time.Millisecond, fault.At+between(rng, -250, int(fault.For.Milliseconds())+300))
	}
	kill := func(at time.Duration) Action {
		a := Action{At: at, Do: doKill, Who: everybody}
		if rng.IntN(3) == 0 {
			a.Who = rng.IntN(instances)
		}
		return a
	}
	flag := func(at time.Duration) Action {
		to := s.Start + 1
		if to > holdover.StageMySQL || s.Start > holdover.StageRedis && rng.IntN(2) == 0 {
			to = s.Start - 1
		}
		return Action{At: at, Do: doFlag, Who: everybody, Stage: to}
	}
	switch n := rng.IntN(100); {
	case n < 45:
		return []Action{kill(near())}
	case n < 65:
		return []Action{flag(near())}
	case n < 80:
		k := kill(near())
		return []Action{k, {At: k.At + between(rng, 50, 700), Do: doRestore, Who: everybody}}
	case n < 90:
		f := flag(near())
		return []Action{f, kill(f.At + between(rng, 20, 500))}
	default:
		k := kill(near())
		return []Action{k, {At: k.At + between(rng, 50, 500), Do: doRestore, Who: everybody}, kill(k.At + between(rng, 500, 900))}
	}
}

type weighted[T any] struct {
	what   T
	weight int
}

func pick[T any](rng *rand.Rand, from []weighted[T]) T {
	sum := 0
	for _, w := range from {
		sum += w.weight
	}
	n := rng.IntN(sum)
	for _, w := range from {
		if n -= w.weight; n < 0 {
			return w.what
		}
	}
	panic("unreachable: the weights add up to sum")
}

// between draws milliseconds.
func between(rng *rand.Rand, from, to int) time.Duration {
	return time.Duration(from+rng.IntN(to-from+1)) * time.Millisecond
}
