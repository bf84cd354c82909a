package teststack_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/redis/go-redis/v9"

	"holdover/internal/teststack"
)

func TestMain(m *testing.M) { teststack.Main(m, "pod-x", "pod-y") }

func TestSchemasAreFreshAndDropped(t *testing.T) {
	teststack.NoLeaks(t)
	admin, err := sql.Open("mysql", teststack.Stack().AdminDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	count := func() (n int) {
		t.Helper()
		if err := admin.QueryRow("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 't\\_%'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	t.Run("two schemas", func(t *testing.T) {
		for range 2 {
			db, err := sql.Open("mysql", teststack.MySQLDSN(t))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if _, err := db.Exec("CREATE TABLE one (id INT PRIMARY KEY)"); err != nil {
				t.Fatal(err) // it would exist if both were one schema
			}
		}
		if got := count(); got != before+2 {
			t.Errorf("%d schemas, want %d", got, before+2)
		}
	})
	if got := count(); got != before {
		t.Errorf("%d schemas after the test, want %d", got, before)
	}
}

func TestRedisDatabasesAreFreshAndFlushed(t *testing.T) {
	teststack.NoLeaks(t)
	ctx := context.Background()
	used := map[int]bool{}
	for range 3 {
		t.Run("round", func(t *testing.T) {
			addr, one := teststack.FreshRedis(t)
			_, two := teststack.FreshRedis(t)
			if one == two || one == 0 || two == 0 {
				t.Fatalf("databases %d and %d: want two, and not number 0", one, two)
			}
			for _, db := range []int{one, two} {
				used[db] = true
				client := redis.NewClient(&redis.Options{Addr: addr, DB: db})
				defer client.Close()
				if n := client.DBSize(ctx).Val(); n != 0 {
					t.Errorf("database %d has %d keys", db, n)
				}
				if err := client.Set(ctx, "key", "value", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if len(used) != 2 {
		t.Errorf("used databases %v, want the same two again and again", used)
	}
}

func TestPods(t *testing.T) {
	if got := teststack.Pod(); got != "pod-x" {
		t.Errorf("Pod() = %q", got)
	}
	stack := teststack.Stack()
	if stack.RedisAddr("pod-y") == "" || stack.RedisAddr("pod-y") == stack.RedisAddr("pod-x") {
		t.Errorf("addresses %q and %q: want two", stack.RedisAddr("pod-x"), stack.RedisAddr("pod-y"))
	}
}

func TestNeedMySQL(t *testing.T) {
	ran := false
	t.Run("inner", func(t *testing.T) {
		teststack.NeedMySQL(t)
		ran = true
	})
	if ran == teststack.MariaDB() {
		t.Errorf("the test ran: %v, on MariaDB: %v", ran, teststack.MariaDB())
	}
}
