package dualwrite_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/teststack"
	"holdover/legacyredis"
	"holdover/mysqlpool"
)

// A checkout service puts the facade where it called Redis before. The calls
// stay the same in every stage; only who decides changes.
func ExampleFacade() {
	ctx := context.Background()
	addr := teststack.Stack().RedisAddr(teststack.Pod()) // "host:6379"
	dsn := teststack.Stack().MySQLDSN(teststack.Pod())   // "user:password@tcp(host:3306)/schema"
	shop := time.Now().UnixMicro()                       // a shop of this run's own
	const item, location = 1, 1

	// Both stores of the pod. They close after everything that uses them.
	redis, err := legacyredis.Open(ctx, legacyredis.Config{Pod: "eu-1", Addr: addr})
	check(err)
	defer redis.Close()
	_, err = mysqlpool.Migrate(ctx, dsn)
	check(err)
	mysql, err := mysqlpool.Open(ctx, mysqlpool.Config{Pod: "eu-1", DSN: dsn})
	check(err)
	defer mysql.Close()

	// Stock: the ledger knows the units of each location, Redis their sum.
	_, err = mysql.ImportStock(ctx, []mysqlpool.StockRow{{Shop: shop, Item: item, Group: location, Available: 3}})
	check(err)
	_, err = redis.Load(ctx, shop, map[int64]int64{item: 3}, false)
	check(err)

	facade, err := dualwrite.New(dualwrite.Config{Pod: "eu-1", Instance: "checkout-1", Redis: redis, MySQL: mysql})
	check(err)
	background, stop := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() { defer close(stopped); facade.Run(background) }() // mirrors, drains, expires
	defer func() { stop(); <-stopped }()

	// The pod's first agreement: Redis decides. A service that is not the first
	// to start calls Refresh; killswitch.Follower calls it on every change.
	fence, err := facade.Init(ctx, "example", "first start")
	check(err)
	check(facade.Refresh(ctx))

	cart := holdover.Request{
		Shop: shop, Token: holdover.NewToken(), TTL: 15 * time.Minute,
		Lines: []holdover.Line{{Item: item, Group: location, Quantity: 2}},
	}
	res, err := facade.Reserve(ctx, cart)
	fmt.Println(res.Hold.State, "in stage", res.Decision.Stage, "-", res.Decision.Reason, err)
	res, err = facade.Reserve(ctx, cart) // no answer arrived? The token makes a repeat safe
	fmt.Println(res.Hold.State, "again:", res.Replayed, err)

	other := cart
	other.Token = holdover.NewToken()
	_, err = facade.Reserve(ctx, other)
	var short *holdover.OutOfStockError
	if errors.As(err, &short) {
		fmt.Println("refused by", short.Store, "with", short.Short[0].Left, "left")
	}

	// One step forward. rollout.Driver does this when the flag says so and the
	// pod is ready.
	_, err = facade.Step(ctx, fence, holdover.StageShadow, "example", "let MySQL follow")
	check(err)

	res, err = facade.Claim(ctx, shop, cart.Token) // the payment went through
	fmt.Println(res.Hold.State, "in stage", res.Decision.Stage, "-", res.Decision.Reason, err)
	res, err = facade.Claim(ctx, shop, cart.Token)
	fmt.Println(res.Hold.State, "again:", res.Replayed, err)
	stocks, err := mysql.Probe(ctx, shop, []int64{item})
	fmt.Println("left in the ledger:", stocks[0].Available, err)

	_, err = facade.Step(ctx, must(facade.Agreed()), holdover.StageRedis, "example", "and back again")
	check(err)
	// Output:
	// held in stage redis - redis decides alone <nil>
	// held again: true <nil>
	// refused by redis with 1 left
	// claimed in stage shadow - marked in redis, written to the ledger <nil>
	// claimed again: true <nil>
	// left in the ledger: 1 <nil>
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
