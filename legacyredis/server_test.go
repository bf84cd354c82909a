package legacyredis_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"holdover/internal/teststack"
)

// ownRedis is the address of pod B's Redis, flushed and with its data kept from
// no earlier test, for a test that changes the server itself.
func ownRedis(t *testing.T) string {
	t.Helper()
	stack := teststack.MustStack(t)
	restart := func(ctx context.Context) error {
		if err := stack.StopRedis(podB, syscall.SIGKILL); err != nil {
			t.Logf("stop: %v", err) // it may be stopped already
		}
		return stack.StartRedis(ctx, podB, false)
	}
	if err := restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := restart(ctx); err != nil {
			t.Errorf("bring pod B's Redis back: %v", err)
		}
	})
	return stack.RedisAddr(podB)
}
