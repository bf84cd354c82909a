package teststack

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"holdover/internal/devstack"
)

// DefaultPod is the pod's name when Main is given none.
const DefaultPod = "pod-test"

// shared is the process's one stack. A test binary has no other place for what its tests share.
var shared struct {
	mu    sync.Mutex
	pods  []string
	stack *devstack.Stack
	err   error // of the first try; a second would only take as long again
}

// Main starts a stack with the pods (one, DefaultPod, when none is given), runs the tests, closes the stack and exits.
// A stack that can't be started or closed fails the run.
func Main(m *testing.M, pods ...string) {
	shared.mu.Lock()
	shared.pods = pods
	shared.mu.Unlock()
	stack, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	v := stack.Versions()
	fmt.Fprintf(os.Stderr, "teststack: Redis %s, MySQL %s\n", v.Redis, v.MySQL)
	code := m.Run()
	if err := stack.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func start() (*devstack.Stack, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.stack == nil && shared.err == nil {
		if len(shared.pods) == 0 {
			shared.pods = []string{DefaultPod}
		}
		shared.stack, shared.err = devstack.Start(context.Background(), devstack.Config{
			Pods:         shared.pods,
			Unflushed:    true,            // a test's commits wait for no disk
			StartTimeout: 3 * time.Minute, // a busy CI machine starts several stacks at once
		})
	}
	return shared.stack, shared.err
}

// Stack is the process's stack, started now if it was not yet. It panics when that fails; tests have MustStack.
func Stack() *devstack.Stack {
	stack, err := start()
	if err != nil {
		panic(err)
	}
	return stack
}

// MustStack is Stack for a test: the test fails when the stack can't be started.
func MustStack(t testing.TB) *devstack.Stack {
	t.Helper()
	stack, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return stack
}

// Pod is the name of the pod that FreshRedis serves: the first.
func Pod() string {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if len(shared.pods) == 0 {
		return DefaultPod
	}
	return shared.pods[0]
}

// MariaDB tells whether the stack's MySQL is a MariaDB.
func MariaDB() bool { return Stack().Versions().MariaDB }

// NeedMySQL skips a test that reads tables which only MySQL has.
func NeedMySQL(t testing.TB) {
	t.Helper()
	if MustStack(t).Versions().MariaDB {
		t.Skip("not applicable on MariaDB")
	}
}

// MySQLDSN is the DSN of a fresh, empty schema for this test, dropped when the test ends. Close what uses it before that:
// in a Cleanup that is registered later, or by defer.
func MySQLDSN(t testing.TB) string {
	t.Helper()
	cfg, err := createSchema(MustStack(t))
	if err != nil {
		t.Fatal(err)
	}
	dsn := cfg.FormatDSN()
	t.Cleanup(func() {
		if err := dropSchema(dsn); err != nil {
			t.Errorf("teststack: drop the test's schema (is the server stopped, or a transaction of the test still open?): %v", err)
		}
	})
	return dsn
}

// createSchema makes an empty schema with a name of its own.
func createSchema(stack *devstack.Stack) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(stack.AdminDSN())
	if err != nil {
		return nil, fmt.Errorf("teststack: the stack's DSN: %w", err)
	}
	random := make([]byte, 6)
	rand.Read(random)
	schema := "t_" + hex.EncodeToString(random)
	if err := exec(cfg, "CREATE DATABASE `"+schema+"` CHARACTER SET utf8mb4"); err != nil {
		return nil, fmt.Errorf("teststack: create a schema: %w", err)
	}
	cfg.DBName = schema
	return cfg, nil
}

func dropSchema(dsn string) error {
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return err
	}
	schema := cfg.DBName
	cfg.DBName = ""
	return exec(cfg, "DROP DATABASE `"+schema+"`")
}

// exec runs one statement.
func exec(cfg *mysql.Config, statement string) error {
	return connected(cfg, func(ctx context.Context, conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}

// connected does something over a connection of its own, so that nothing stays open between tests.
func connected(cfg *mysql.Config, do func(context.Context, *sql.Conn) error) error {
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(ctx, conn)
}

// databases hands out Redis's logical databases. Number 0 stays out: a client that forgets to select one lands there.
var databases struct {
	mu   sync.Mutex
	next int
	free []int
}

// FreshRedis is the address of the first pod's Redis and the number of a logical database that is empty and this test's
// own; it is flushed when the test ends.
func FreshRedis(t testing.TB) (addr string, db int) {
	t.Helper()
	addr = MustStack(t).RedisAddr(Pod())
	databases.mu.Lock()
	if n := len(databases.free); n > 0 {
		db, databases.free = databases.free[n-1], databases.free[:n-1]
	} else {
		databases.next++
		db = databases.next
	}
	databases.mu.Unlock()
	if db >= devstack.RedisDatabases {
		t.Fatalf("teststack: more than %d tests use Redis at once", devstack.RedisDatabases-1)
	}
	if err := flush(addr, db); err != nil {
		t.Fatalf("teststack: empty Redis database %d: %v", db, err)
	}
	t.Cleanup(func() {
		if err := flush(addr, db); err != nil {
			t.Errorf("teststack: empty Redis database %d after the test (is the server stopped?): %v", db, err)
			return
		}
		databases.mu.Lock()
		databases.free = append(databases.free, db)
		databases.mu.Unlock()
	})
	return addr, db
}

func flush(addr string, db int) error {
	client := redis.NewClient(&redis.Options{Addr: addr, DB: db, MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return client.FlushDB(ctx).Err()
}

// NoLeaks fails the test when goroutines that it started still run after its cleanups. Call it first in the test, before
// anything registers a cleanup. Not for parallel tests.
func NoLeaks(t testing.TB) {
	t.Helper()
	MustStack(t)
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, append(LeakOptions(), before)...) })
}

// LeakOptions tells goleak which goroutines belong to the stack: one per server, waiting for its end.
func LeakOptions() []goleak.Option {
	return []goleak.Option{goleak.IgnoreAnyFunction("holdover/internal/devstack.(*process).wait")}
}
