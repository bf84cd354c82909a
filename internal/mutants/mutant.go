package mutants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/dualwrite"
	"holdover/killswitch"
)

// Servers are where the pod's stores are. Mutants that do what no store of the
// product offers have connections of their own.
type Servers struct {
	RedisAddr string
	MySQLDSN  string
}

// Mutant switches one protection off. The zero Mutant changes nothing.
type Mutant struct {
	name    string
	every   uint64        // of lose-mirror
	redis   *redis.Client // with its default options
	once    *redis.Client // without repeats
	db      *sql.DB
	running sync.WaitGroup
}

// Make returns the mutant of that name; without a name, one that changes nothing.
func Make(name string, at Servers) (*Mutant, error) {
	m := &Mutant{name: name}
	if name == "" {
		return m, nil
	}
	base, every, ok := parse(name)
	if !ok || !Known(base) && !slices.Contains(ReportNames(), base) {
		return nil, &holdover.InvalidError{Field: "mutate", Value: name, Problem: "is no mutant"}
	}
	if m.name, m.every = base, every; every == 0 {
		m.every = loseEvery
	}
	switch m.name {
	case EndRecords, RedisRetries:
		// Everything as go-redis has it when nobody thought about it.
		m.redis = redis.NewClient(&redis.Options{Addr: at.RedisAddr})
		m.once = redis.NewClient(&redis.Options{Addr: at.RedisAddr, MaxRetries: -1})
	}
	if m.name == EndRecords || m.name == GrantPastStock {
		dsn, err := mysql.ParseDSN(at.MySQLDSN)
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %w", name, err)
		}
		dsn.InterpolateParams, dsn.Logger = true, &mysql.NopLogger{}
		connector, err := mysql.NewConnector(dsn)
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %w", name, err)
		}
		m.db = sql.OpenDB(connector)
	}
	return m, nil
}

// Close waits for what is still to be done and closes the connections.
func (m *Mutant) Close() error {
	if m == nil {
		return nil
	}
	m.running.Wait()
	var errs []error
	if m.redis != nil {
		errs = append(errs, m.redis.Close(), m.once.Close())
	}
	if m.db != nil {
		errs = append(errs, m.db.Close())
	}
	return errors.Join(errs...)
}

// lateTime bounds what a mutant does after it has answered.
const lateTime = 5 * time.Second

// later does something after the answer.
func (m *Mutant) later(ctx context.Context, after time.Duration, do func(context.Context)) {
	m.running.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateTime)
		defer cancel()
		timer := time.NewTimer(after)
		defer timer.Stop()
		<-timer.C
		do(ctx)
	})
}

// Redis wraps the pod's Redis.
func (m *Mutant) Redis(r dualwrite.Redis) dualwrite.Redis {
	switch m.name {
	case RedisEpoch:
		return anyEpochRedis{r}
	case MirrorBeforeAnswer:
		return lateCopies{r, m}
	case MarkBeforeLedger:
		return noMarks{r}
	case AttemptIDs:
		return oneAttemptRedis{r}
	case EndRecords:
		return forgetfulRedis{r, m}
	case RedisRetries:
		return plainDecrements{r, m}
	}
	return r
}

// MySQL wraps the pod's MySQL.
func (m *Mutant) MySQL(s dualwrite.MySQL) dualwrite.MySQL {
	switch m.name {
	case MySQLEpoch:
		return anyEpochMySQL{s}
	case OrderedLanes:
		return unorderedMirror{s, m}
	case AttemptIDs:
		return oneAttemptMySQL{s}
	case EndRecords:
		return forgetfulMySQL{s, m}
	case JournalInReadiness:
		return untoldJournal{s}
	case LoseMirror:
		return &lossyMirror{MySQL: s, every: m.every}
	case GrantPastStock:
		return generousMySQL{s, m}
	case SlowTail:
		return &slowTail{MySQL: s}
	}
	return s
}

// KillMySQL wraps the pod's MySQL as the kill switch sees it.
func (m *Mutant) KillMySQL(s killswitch.MySQL) killswitch.MySQL {
	if m.name == JournalInKill {
		return emptyJournal{s}
	}
	return s
}

// untoldJournal: whoever looks at the journal sees nothing in it.
type untoldJournal struct{ dualwrite.MySQL }

func (untoldJournal) JournalSize(context.Context) (int64, time.Duration, error) { return 0, 0, nil }

func (untoldJournal) Journal(context.Context, int) ([]holdover.Journaled, error) { return nil, nil }

// emptyJournal: the kill finds no fact to carry.
type emptyJournal struct{ killswitch.MySQL }

func (e emptyJournal) TripFence(ctx context.Context, f holdover.Fence) ([]holdover.Journaled, error) {
	_, err := e.MySQL.TripFence(ctx, f)
	return nil, err
}
