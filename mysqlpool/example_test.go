package mysqlpool_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"holdover"
	"holdover/internal/teststack"
	"holdover/mysqlpool"
)

// The pool on its own: what a shop keeps when the migration is over.
func ExamplePool() {
	ctx := context.Background()
	dsn := teststack.Stack().MySQLDSN(teststack.Pod()) // "user:password@tcp(host:3306)/schema"
	if _, err := mysqlpool.Migrate(ctx, dsn); err != nil {
		panic(err)
	}
	store, err := mysqlpool.Open(ctx, mysqlpool.Config{Pod: "eu-1", DSN: dsn})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	const shop, item, location = 900, 1, 1
	if _, err := store.ImportStock(ctx, []mysqlpool.StockRow{{Shop: shop, Item: item, Group: location, Available: 3}}); err != nil {
		panic(err)
	}
	pool := mysqlpool.NewPool(store, mysqlpool.PoolConfig{}) // and in a goroutine: pool.Run(ctx)

	cart := holdover.Request{
		Shop: shop, Token: holdover.NewToken(), TTL: 15 * time.Minute,
		Lines: []holdover.Line{{Item: item, Group: location, Quantity: 2}},
	}
	res, err := pool.Reserve(ctx, cart)
	fmt.Println(res.Hold.State, res.Decision.Reason, err)
	res, err = pool.Reserve(ctx, cart) // the token makes a repeat safe
	fmt.Println(res.Hold.State, res.Replayed, err)

	next := cart
	next.Token = holdover.NewToken()
	_, err = pool.Reserve(ctx, next)
	var short *holdover.OutOfStockError
	fmt.Println(errors.As(err, &short), short)

	res, err = pool.Claim(ctx, shop, cart.Token) // the payment went through
	fmt.Println(res.Hold.State, err)
	_, err = pool.Release(ctx, shop, cart.Token)
	fmt.Println(errors.Is(err, holdover.ErrAlreadyClaimed))
	// Output:
	// held granted by the unit pool <nil>
	// held true <nil>
	// true out of stock in mysql, shop 900: item 1 at group 1: 2 wanted, 1 left
	// claimed <nil>
	// true
}

// open brings a pool with stock up: item 1 at locations 1 (two units) and 2
// (nine units) of the shop.
func open(ctx context.Context, shop int64) (*mysqlpool.Pool, func()) {
	dsn := teststack.Stack().MySQLDSN(teststack.Pod())
	if _, err := mysqlpool.Migrate(ctx, dsn); err != nil {
		panic(err)
	}
	store, err := mysqlpool.Open(ctx, mysqlpool.Config{Pod: "eu-1", DSN: dsn})
	if err != nil {
		panic(err)
	}
	if _, err := store.ImportStock(ctx, []mysqlpool.StockRow{{Shop: shop, Item: 1, Group: 1, Available: 2}, {Shop: shop, Item: 1, Group: 2, Available: 9}}); err != nil {
		panic(err)
	}
	return mysqlpool.NewPool(store, mysqlpool.PoolConfig{}), func() { _ = store.Close() }
}

// The location is the pool's to pick: the first of the list that has all units,
// or, when it may split them, several.
func ExamplePool_Reserve_choices() {
	ctx := context.Background()
	const shop = 901
	pool, done := open(ctx, shop)
	defer done()

	buy := func(c holdover.Choice) {
		res, err := pool.Reserve(ctx, holdover.Request{
			Shop: shop, Token: holdover.NewToken(), TTL: 15 * time.Minute, Choices: []holdover.Choice{c},
		})
		for _, l := range res.Hold.Lines {
			fmt.Printf("%d from location %d; ", l.Quantity, l.Group)
		}
		fmt.Println(err)
	}
	buy(holdover.Choice{Item: 1, Quantity: 1, Groups: []int64{1, 2}})
	buy(holdover.Choice{Item: 1, Quantity: 8, Groups: []int64{1, 2}})
	buy(holdover.Choice{Item: 1, Quantity: 2, Groups: []int64{1, 2}})
	buy(holdover.Choice{Item: 1, Quantity: 2, Groups: []int64{1, 2}, Split: true})
	// Output:
	// 1 from location 1; <nil>
	// 8 from location 2; <nil>
	// out of stock in mysql, shop 901: item 1 at any listed group: 2 wanted, 1 left
	// 1 from location 1; 1 from location 2; <nil>
}

// The payment took longer than the hold lived: the claim takes the units again
// while there are any, and says so.
func ExamplePool_Claim_late() {
	ctx := context.Background()
	const shop = 902
	pool, done := open(ctx, shop)
	defer done()

	cart := holdover.Request{
		Shop: shop, Token: holdover.NewToken(), TTL: 100 * time.Millisecond,
		Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 2}},
	}
	if _, err := pool.Reserve(ctx, cart); err != nil {
		panic(err)
	}
	for ended := 0; ended == 0; { // pool.Run does that
		var err error
		if ended, err = pool.Reap(ctx); err != nil {
			panic(err)
		}
	}
	res, err := pool.Claim(ctx, shop, cart.Token)
	fmt.Println(res.Hold.State, res.Hold.Late == cart.Token.Late(), err)

	res, err = pool.Lookup(ctx, shop, cart.Token)
	fmt.Println(res.Hold.State, err)

	next := cart
	next.Token = holdover.NewToken()
	_, err = pool.Reserve(ctx, next)
	fmt.Println(errors.Is(err, holdover.ErrOutOfStock)) // its two units are sold
	// Output:
	// claimed true <nil>
	// claimed <nil>
	// true
}

// The order and the deduction from the stock commit together: the reason for
// the whole move. The application's own rows come first and the claim last,
// because the ledger's row of a hot item stays locked until the commit.
func ExamplePool_ClaimTx() {
	ctx := context.Background()
	pool, done := open(ctx, 903)
	defer done()
	dsn := teststack.Stack().MySQLDSN(teststack.Pod())
	db, err := sql.Open("mysql", dsn) // the application's own connections, to the same schema
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (token BINARY(16) PRIMARY KEY, customer BIGINT)"); err != nil {
		panic(err)
	}
	defer db.ExecContext(ctx, "DROP TABLE orders")
	token := holdover.NewToken()
	_, err = pool.Reserve(ctx, holdover.Request{Shop: 903, Token: token, TTL: time.Minute, Lines: []holdover.Line{{Item: 1, Group: 2, Quantity: 4}}})
	if err != nil {
		panic(err)
	}

	order := func(commit bool) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			panic(err)
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, 42)", token[:]); err != nil {
			panic(err)
		}
		res, err := pool.ClaimTx(ctx, tx, 903, token)
		if err != nil {
			panic(err) // and the deferred rollback takes all of it back
		}
		fmt.Println("in the transaction:", res.Hold.State)
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback() // the payment failed
		}
		if err != nil {
			panic(err)
		}
		var orders int
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&orders); err != nil {
			panic(err)
		}
		now, err := pool.Lookup(ctx, 903, token)
		fmt.Println("after it:", orders, "orders, the hold is", now.Hold.State, err)
	}
	order(false)
	order(true)
	// Output:
	// in the transaction: claimed
	// after it: 0 orders, the hold is held <nil>
	// in the transaction: claimed
	// after it: 1 orders, the hold is claimed <nil>
}
