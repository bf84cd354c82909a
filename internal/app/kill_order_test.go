package app

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"holdover"
)

// TestKillFlipsFirst: a kill asks Redis for its fence and then writes it. What is
// only told, like readiness and who has seen it, comes after that, and is told as
// it was before the kill.
func TestKillFlipsFirst(t *testing.T) {
	r := newRepairRig(t, holdover.StageMySQL)
	// A fact that only MySQL knows, and an instance that follows the kill at once.
	request := holdover.Request{Shop: 1, Token: holdover.NewToken(), Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}, TTL: time.Hour}
	if _, err := r.MySQL.Vote(t.Context(), holdover.Ticket{Epoch: r.epoch, Attempt: 1}, request, true); err != nil {
		t.Fatal(err)
	}
	if err := r.Redis.Heartbeat(t.Context(), holdover.Instance{Name: "one", ID: "1", Epoch: r.epoch + 2}); err != nil {
		t.Fatal(err)
	}
	seen := monitor(t, r.cfg)
	s, err := OpenUnasked(t.Context(), r.cfg, r.cfg.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	const reason = "what comes first"
	killed, err := Kill(t.Context(), s, "ops", reason, false)
	if err != nil {
		t.Fatal(err)
	}
	for line := range seen {
		if strings.Contains(line, reason) {
			break // the flip
		}
		if strings.Contains(strings.ToLower(line), `"eval`) {
			t.Errorf("before the flip: %s", line)
		}
	}
	if killed.Carried != 1 || len(killed.Acknowledged) != 1 {
		t.Errorf("carried %d, acknowledged by %v", killed.Carried, killed.Acknowledged)
	}
	if want := "no: 1 fact not in redis yet"; !strings.HasPrefix(killed.Readiness, want) || strings.Contains(killed.Readiness, "latched") || strings.Contains(killed.Readiness, "works with") {
		t.Errorf("readiness was %q, want %s ..., and nothing that the kill itself has made of it", killed.Readiness, want)
	}
}

// monitor shows what the pod's Redis is asked, until the test ends.
func monitor(t *testing.T, c Config) <-chan string {
	t.Helper()
	conn, err := net.Dial("tcp", c.Pods[0].Redis.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %q %v", lines.Text(), lines.Err())
	}
	seen := make(chan string, 10_000)
	go func() { // ends with the connection
		defer close(seen)
		for lines.Scan() {
			if strings.Contains(lines.Text(), fmt.Sprintf("[%d ", c.Pods[0].Redis.DB)) {
				seen <- lines.Text()
			}
		}
	}()
	return seen
}
