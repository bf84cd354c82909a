package connhold_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/go-sql-driver/mysql"

	"holdover/internal/teststack"
	"holdover/mysqlpool/connhold"
)

func Example() {
	config, err := mysql.ParseDSN(teststack.Stack().AdminDSN())
	if err != nil {
		log.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		log.Fatal(err)
	}
	var totals connhold.Totals
	db := sql.OpenDB(connhold.Wrap(connector, &totals))
	defer db.Close()

	ctx := connhold.WithTag(context.Background(), "reserve")
	for range 3 {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		// Whatever happens before the end of the transaction is part of the hold.
		if err := tx.Commit(); err != nil {
			log.Fatal(err)
		}
	}
	for _, t := range totals.Snapshot() {
		fmt.Println(t.Tag, t.Count, t.Held > 0)
	}
	// Output: reserve 3 true
}
