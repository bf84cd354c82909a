package mysqlpool_test

import (
	"context"
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
