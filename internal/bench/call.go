package bench

import (
	"context"
	"errors"

	"github.com/go-sql-driver/mysql"

	"holdover"
)

// call is one caller's reserve. A worker has one and uses it again and again:
// a call costs no memory here.
type call struct {
	worker int
	token  holdover.Token
	lines  []holdover.Line // each item of shop 1 at group 1

	attempts  int64 // tries at the store, added up over the worker's calls
	conflicts int64 // tries lost to somebody else
	timeouts  int64 // of them, row lock waits that ran out

	reply chan reply // of ways that combine calls
}

type reply struct {
	granted bool
	err     error
}

func (c *call) line() holdover.Line { return c.lines[0] }

// way is one competitor, open for one turn. reserve is called from many
// goroutines, one call each at a time.
type way interface {
	// reserve takes the call's lines or nothing: granted, or sold out. An error
	// is neither: it gave up.
	reserve(ctx context.Context, c *call) (granted bool, err error)
	// count counts in the stores, after the last call.
	count(ctx context.Context) (truth, error)
	// close ends what the way has running and its connections.
	close() error
}

// claimer is a way that can also make a hold of reserve's a sale.
type claimer interface {
	claim(ctx context.Context, c *call) error
}

const (
	errLockWait  = 1205
	errDeadlock  = 1213
	errCheck     = 3819 // MySQL: a check constraint is violated
	errCheckAlso = 4025 // MariaDB
)

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// lost notes a try that somebody else won, and says whether err is one.
func (c *call) lost(err error) bool {
	switch number(err) {
	case errDeadlock:
	case errLockWait:
		c.timeouts++
	default:
		return false
	}
	c.conflicts++
	return true
}

// maxTries bounds how often a call is tried again after a deadlock or a lock
// wait.
const maxTries = 10
