package legacyredis_test

import (
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"holdover"
	"holdover/internal/teststack"
)

// TestIdentityAfterAFailoverAndBack: a primary that was made a replica of another one
// and is a primary again has the other one's data, under its own run id.
func TestIdentityAfterAFailoverAndBack(t *testing.T) {
	stack := teststack.MustStack(t)
	r := rigAt(t, ownRedis(t), 0)
	r.setFence(3, holdover.StageMySQL)
	r.load(map[int64]int64{item: 10})
	before := must[string](t)(r.Identity(t.Context()))

	raw := redis.NewClient(&redis.Options{Addr: stack.RedisAddr(podB), MaxRetries: -1})
	defer raw.Close()
	host, port, err := net.SplitHostPort(stack.RedisAddr(podA))
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it follows the other one", func() bool {
		info, err := raw.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	if err := raw.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fence(t.Context()); err == nil {
		t.Error("it did not get the other one's data: this test shows nothing")
	}
	if after := must[string](t)(r.Identity(t.Context())); after == before {
		t.Error("another one's data, and the same identity: readiness would call the last clean verification its own")
	}
}
