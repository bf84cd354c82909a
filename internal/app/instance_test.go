package app

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"holdover"
)

// failures hears of the heartbeats that failed.
type failures chan struct{}

func (f failures) Enabled(context.Context, slog.Level) bool { return true }
func (f failures) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f failures) WithGroup(string) slog.Handler            { return f }
func (f failures) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Message == "heartbeat" && a.Key == "failing" && a.Value.Bool() {
			select {
			case f <- struct{}{}:
			default:
			}
		}
		return true
	})
	return nil
}

// An acknowledgement that Redis did not take is made again at once, not with the
// next heartbeat: somebody waits for it.
func TestAcknowledgesAgain(t *testing.T) {
	c := newConfig(t)
	failed := make(failures, 1)
	c.Timing.Heartbeat, c.Logger = 10*time.Minute, slog.New(failed)
	s := newStores(t, c)
	fences(t, s, holdover.StageRedis)
	pod, err := OpenPod(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pod.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := pod.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	acknowledged := func(epoch holdover.Epoch) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; {
			live, err := s.Redis.Instances(t.Context(), time.Hour)
			if err == nil && len(live) == 1 && live[0].Epoch == epoch {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("epoch %d is not acknowledged: %+v %v", epoch, live, err)
			}
			time.Sleep(5 * time.Millisecond) // between two looks
		}
	}
	acknowledged(1)

	direct := redis.NewClient(&redis.Options{Addr: c.Pods[0].Redis.Addr, DB: c.Pods[0].Redis.DB})
	defer direct.Close()
	key := c.redis(c.Pods[0]).Prefix + "instances"
	if err := direct.Rename(t.Context(), key, key+":away").Err(); err != nil {
		t.Fatal(err)
	}
	if err := direct.Set(t.Context(), key, "of another type", 0).Err(); err != nil {
		t.Fatal(err)
	}
	killed, err := s.Switch.Trip(t.Context(), "test", "an acknowledgement fails")
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-failed:
	case <-time.After(time.Minute):
		t.Fatal("no heartbeat has failed")
	}
	if err := direct.Rename(t.Context(), key+":away", key).Err(); err != nil {
		t.Fatal(err)
	}
	acknowledged(killed.To.Epoch)
}
