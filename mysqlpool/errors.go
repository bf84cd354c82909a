package mysqlpool

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"holdover"
)

// Server error numbers that are acted on.
const (
	errTooManyConns  = 1040
	errAccessDenied  = 1045
	errNoSuchSchema  = 1049
	errDuplicateKey  = 1062
	errNoSuchTable   = 1146
	errLockWait      = 1205
	errDeadlock      = 1213
	errOptionForbids = 1290 // --read-only, --super-read-only
	errSnapshot      = 1020 // MariaDB's innodb_snapshot_isolation
	errReadOnlyTx    = 1792
	errReadOnlyMode  = 1836
	errGroupRollback = 3101 // group replication rolled the transaction back at commit
	errMismatch      = 1242 // stmtExpect: a statement changed another number of rows
	errCheck         = 3819 // a CHECK constraint; MariaDB says 4025
	errCheckMariaDB  = 4025
	errTooLarge      = 1153 // max_allowed_packet
)

// refusedBeforeCommit reports whether a packet that ended with COMMIT certainly
// did nothing. The first error ends a packet, so any error of the server that a
// COMMIT itself does not give came from a statement before it; and of those that
// it gives, these say that it rolled back.
func refusedBeforeCommit(n uint16) bool {
	switch n {
	case 0, // not the server's word: the connection broke
		1047,             // a cluster's node that has no majority
		1053,             // the server shuts down
		1105, 1180, 1181, // an error that it does not name; during COMMIT; during ROLLBACK
		1158, 1159, 1160, 1161, // the connection, as the server sees it
		1317, 1927, 1969, 3024, // interrupted, killed, out of time
		3168, 3572: // the server is being taken away
		return false
	}
	return true
}

// Outcomes of a step inside the package; none leaves it.
var (
	errShort     = errors.New("the pool has too few rows that are not locked")
	errTaken     = errors.New("the token has rows already")
	errChanged   = errors.New("the hold changed since it was read")
	errNoPool    = errors.New("pool_state has no row for an item")
	errAlone     = errors.New("the call has to be made alone")
	errOverdrawn = errors.New("the ledger has less than the hold")
	errOpTimeout = errors.New("the call took longer than op_timeout")
)

// serverError is a failure of a statement, as opposed to a step's own outcome.
type serverError struct {
	err     error
	unknown bool // a COMMIT without an answer
	again   bool // a race that the next try can't lose
}

func (e *serverError) Error() string { return e.err.Error() }
func (e *serverError) Unwrap() error { return e.err }

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// retryable: the transaction certainly did nothing, and has a chance when it
// is run again.
func retryable(err error) bool {
	var se *serverError
	if !errors.As(err, &se) || se.unknown {
		return false
	}
	if se.again {
		return true
	}
	switch number(err) {
	case errDeadlock, errLockWait, errSnapshot, errGroupRollback:
		return true
	case 0:
		// The connection broke: nothing was committed, another one may work.
		return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
	}
	return false
}

func readOnly(err error) bool {
	n := number(err)
	return n == errOptionForbids || n == errReadOnlyTx || n == errReadOnlyMode
}

// fail turns a failure of the server into the root's error. Errors that are
// the root's already pass.
func (s *Store) fail(op string, token holdover.Token, err error) error {
	if err == nil {
		return nil
	}
	var se *serverError
	unknown := errors.As(err, &se) && se.unknown
	if unknown {
		s.stats.unknown.Add(1)
	}
	cause := err
	switch number(err) {
	case errTooManyConns:
		cause = fmt.Errorf("the server has no connection left, raise max_connections or lower max_open_conns: %w", err)
	case errAccessDenied, errNoSuchSchema:
		cause = fmt.Errorf("check user, password and schema in the dsn: %w", err)
	case errNoSuchTable:
		cause = fmt.Errorf("the schema is not migrated: %w", err)
	}
	if readOnly(err) {
		cause = fmt.Errorf("the server is read-only, a replica or failed over; the connection was dropped so that the next call may find the primary: %w", err)
	}
	return &holdover.StoreError{Store: holdover.StoreMySQL, Pod: s.cfg.Pod, Op: op, Token: token, Unknown: unknown, Err: cause}
}

// notDone is the answer to a call that no batch has answered.
func (s *Store) notDone(ctx context.Context, op string, token holdover.Token, err error) error {
	se := &holdover.StoreError{Store: holdover.StoreMySQL, Pod: s.cfg.Pod, Op: op, Token: token, Err: timedOut(ctx, err)}
	switch {
	case errors.Is(err, holdover.ErrOverloaded):
		return fmt.Errorf("mysql of pod %s: %s of hold %s: %d calls are waiting already: %w", s.cfg.Pod, op, token, s.cfg.BatchQueue, err)
	case errors.Is(err, errLeft):
		s.stats.unknown.Add(1)
		se.Unknown = true
	}
	return se
}

// forCall names the call in an error of its batch.
func forCall(err error, op string, token holdover.Token) error {
	var se *holdover.StoreError
	if !errors.As(err, &se) || se.Token == token {
		return err
	}
	own := *se
	own.Op, own.Token = op, token
	return &own
}

// checkFailed: a number would have gone below zero. Of two ends of one hold the
// later one finds its units given back already, before it sees that the hold
// has ended: it reads again. A stock that is really wrong fails again.
func checkFailed(err error) bool {
	n := number(err)
	return n == errCheck || n == errCheckMariaDB
}

// divisible: the server refused one of several calls, and the others have a
// chance without it.
func divisible(err error) bool {
	return number(err) != 0 && !readOnly(err) && !errors.Is(err, holdover.ErrUnknownOutcome)
}

// timedOut adds the reason of a context that ended to the driver's error.
func timedOut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func reused(token holdover.Token) error {
	return fmt.Errorf("hold %s: %w", token, holdover.ErrTokenReused)
}

func unknownHold(token holdover.Token) error {
	return fmt.Errorf("hold %s: %w", token, holdover.ErrUnknownHold)
}

func (s *Store) notLoaded(k key) error {
	return fmt.Errorf("mysql of pod %s: shop %d, item %d at group %d has no row in %s: %w", s.cfg.Pod, k.shop, k.item, k.group, s.cfg.Ledger.Table, holdover.ErrNotLoaded)
}

func (s *Store) overbooked(token holdover.Token, st holdover.Stock) error {
	return fmt.Errorf("hold %s: mysql of pod %s has issued %d units of shop %d, item %d at group %d and owns %d: nothing is confirmed until holds end or stock is corrected: %w",
		token, s.cfg.Pod, st.Issued, st.Shop, st.Item, st.Group, st.Available, holdover.ErrTryAgain)
}
