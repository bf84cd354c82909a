package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"holdover"
	"holdover/internal/teststack"
)

const reservations = "/v1/shops/1/reservations"

func reserveBody(token string, quantity int) string {
	return fmt.Sprintf(`{"token": %q, "ttl_seconds": 600, "lines": [{"item_id": 7, "group_id": 1, "quantity": %d}]}`, token, quantity)
}

// TestReservationAPI is a checkout's day over HTTP, on two instances.
func TestReservationAPI(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a").stocked()
	one, two := s.serve("checkout-1").ready(), s.serve("checkout-2").ready()

	token := holdover.NewToken().String()
	r := one.post(reservations, reserveBody(token, 4)).has(t, 201, `"state":"held"`, `"stage":"redis"`, `"store":"redis"`, `"replayed":false`)
	if r.body["token"] != token {
		t.Errorf("token %v", r.body["token"])
	}
	two.post(reservations, reserveBody(token, 4)).has(t, 200, `"replayed":true`)
	two.post(reservations, reserveBody(token, 5)).has(t, 409, "urn:holdover:token-reused")
	two.get(reservations+"/"+token).has(t, 200, `"state":"held"`)
	one.post(reservations, reserveBody(holdover.NewToken().String(), 12)).has(t, 409, "urn:holdover:out-of-stock", `"wanted":12`, `"left":11`)
	two.post(reservations+"/"+token+"/claim", "").has(t, 200, `"state":"claimed"`)
	one.post(reservations+"/"+token+"/claim", "").has(t, 200, `"replayed":true`)
	one.post(reservations+"/"+token+"/release", "").has(t, 409, "urn:holdover:already-claimed")
	one.post(reservations, reserveBody(token, 4)).has(t, 409, "urn:holdover:already-claimed")

	other := holdover.NewToken().String()
	one.post(reservations, reserveBody(other, 11)).has(t, 201)
	two.post(reservations+"/"+other+"/release", "").has(t, 200, `"state":"released"`)
	one.post(reservations, reserveBody(other, 11)).has(t, 410, "urn:holdover:hold-ended", `"state":"released"`)
	one.get(reservations+"/"+holdover.NewToken().String()).has(t, 404, "urn:holdover:unknown-hold")
	one.get("/v1/shops/2/reservations/"+token).has(t, 404)

	// The ledger has the claim, and so have both stores.
	if a := s.want(0, nil, "stock", "show", "--item", "7"); !strings.Contains(a.out, "6") || !strings.Contains(a.out, "11") {
		t.Errorf("stock after the claim:\n%s", a.out)
	}
	s.want(0, []string{"clean"}, "verify")

	one.get("/healthz").has(t, 200, "ok")
	one.get("/openapi.json").has(t, 200, "reservations")
	metrics := one.get("/metrics").has(t, 200, `holdover_stage{pod="pod-a",stage="redis"} 1`, `holdover_epoch{pod="pod-a"} 1`,
		`holdover_answers_total{answer="granted",pod="pod-a"} 2`, `holdover_answers_total{answer="refused",pod="pod-a"} 1`, `holdover_desired_stage{pod="pod-a",stage="redis"} 1`)
	if strings.Contains(metrics.text, token) {
		t.Error("the metrics have a token in them")
	}

	// Two at one address are told apart; the second says goodbye when it ends.
	s.want(0, []string{"checkout-1 (", "checkout-2 ("}, "status")
	two.close(0)
	if a := s.want(0, []string{"checkout-1 ("}, "status"); strings.Contains(a.out, "checkout-2") {
		t.Errorf("the ended instance is still there:\n%s", a.out)
	}
	one.close(0)
	s.want(0, []string{"none alive"}, "status")
}

// TestBadInputTouchesNothing: every bad request is answered with what is wrong,
// and neither store changes by it.
func TestBadInputTouchesNothing(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	srv := s.serve("checkout-1").ready()
	s.reach(holdover.StageRedis, 1) // the first fence is in both stores
	line := func(item, group, quantity string) string {
		return fmt.Sprintf(`{"token": %q, "lines": [{"item_id": %s, "group_id": %s, "quantity": %s}]}`, holdover.NewToken(), item, group, quantity)
	}
	ttl := func(seconds string) string {
		return fmt.Sprintf(`{"token": %q, "ttl_seconds": %s, "lines": [{"item_id": 7, "group_id": 1, "quantity": 1}]}`, holdover.NewToken(), seconds)
	}
	before := s.dump()
	for name, c := range map[string]struct {
		path, body string
		status     int
		want       string
	}{
		"negative quantity":  {reservations, line("7", "1", "-1"), 422, "quantity"},
		"zero quantity":      {reservations, line("7", "1", "0"), 422, "quantity"},
		"absurd quantity":    {reservations, line("7", "1", "1000001"), 422, "over the limit"},
		"quantity as text":   {reservations, line("7", "1", `"1"`), 422, "quantity"},
		"half a unit":        {reservations, line("7", "1", "0.5"), 422, "quantity"},
		"item zero":          {reservations, line("0", "1", "1"), 422, "item_id"},
		"item over 64 bits":  {reservations, line("99999999999999999999", "1", "1"), 422, "item_id"},
		"group missing":      {reservations, fmt.Sprintf(`{"token": %q, "lines": [{"item_id": 7, "quantity": 1}]}`, holdover.NewToken()), 422, "group_id"},
		"no lines":           {reservations, fmt.Sprintf(`{"token": %q, "lines": []}`, holdover.NewToken()), 422, "lines"},
		"too many lines":     {reservations, fmt.Sprintf(`{"token": %q, "lines": [%s{"item_id": 7, "group_id": 1, "quantity": 1}]}`, holdover.NewToken(), strings.Repeat(`{"item_id": 7, "group_id": 1, "quantity": 1},`, 200)), 422, "lines"},
		"absurd ttl":         {reservations, ttl("86401"), 422, "ttl_seconds"},
		"more absurd ttl":    {reservations, ttl("9223372036854775807"), 422, "ttl_seconds"},
		"ttl zero":           {reservations, ttl("0"), 422, "ttl_seconds"},
		"ttl negative":       {reservations, ttl("-5"), 422, "ttl_seconds"},
		"token is no uuid":   {reservations, `{"token": "seven", "lines": [{"item_id": 7, "group_id": 1, "quantity": 1}]}`, 422, "token"},
		"unknown field":      {reservations, fmt.Sprintf(`{"token": %q, "stage": "mysql", "lines": [{"item_id": 7, "group_id": 1, "quantity": 1}]}`, holdover.NewToken()), 422, "stage"},
		"not json":           {reservations, `{"token": `, 400, "JSON"},
		"overlong body":      {reservations, `{"token": "` + strings.Repeat("x", 70_000) + `"}`, 413, "bytes"},
		"unknown shop":       {"/v1/shops/5000/reservations", reserveBody(holdover.NewToken().String(), 1), 404, "5000"},
		"shop zero":          {"/v1/shops/0/reservations", reserveBody(holdover.NewToken().String(), 1), 422, "shop"},
		"item not in stock":  {reservations, line("4711", "1", "1"), 503, "stock-not-loaded"},
		"claim of nothing":   {reservations + "/" + holdover.NewToken().String() + "/claim", "", 404, "unknown-hold"},
		"release of nothing": {reservations + "/" + holdover.NewToken().String() + "/release", "", 404, "unknown-hold"},
		"claim of no uuid":   {reservations + "/seven/claim", "", 422, "token"},
		"no such route":      {"/v1/shops/1/reserve", "", 404, "no-such-route"},
	} {
		r := srv.post(c.path, c.body)
		if r.status != c.status || !strings.Contains(r.text, c.want) {
			t.Errorf("%s: status %d, want %d and %q: %s", name, r.status, c.status, c.want, r.text)
		}
	}
	after := s.dump()
	for _, all := range []map[string]string{before, after} { // an end of what nobody knows leaves no trace, but for a record of it
		maps.DeleteFunc(all, func(k, _ string) bool { return strings.Contains(k, "hold:") || strings.HasSuffix(k, "redis ended") })
	}
	for key := range after {
		if before[key] != after[key] {
			t.Errorf("%s changed", key)
		}
	}
}

// TestOperatorRoutes: they want the token, and say what the commands say.
func TestOperatorRoutes(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	srv := s.serve("checkout-1").ready()
	s.reach(holdover.StageRedis, 1) // the first fence is in both stores
	why := `{"by": "ops", "reason": "a test"}`
	before := s.dump()
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/pods", ""}, {"GET", "/v1/pods/pod-a", ""}, {"POST", "/v1/pods/pod-a/kill", why}, {"POST", "/v1/pods/pod-a/restore", why},
		{"GET", "/v1/pods/pod-a/report", ""}, {"POST", "/v1/pods/pod-a/verify", ""},
	} {
		srv.do(c.method, c.path, c.body, "").has(t, 401)
		srv.do(c.method, c.path, c.body, operatorToken+"x").has(t, 401)
	}
	srv.operate("POST", "/v1/pods/pod-x/kill", why).has(t, 404, "pod-x")
	srv.operate("POST", "/v1/pods/pod-a/kill", `{"by": "ops"}`).has(t, 422, "reason")
	srv.operate("POST", "/v1/pods/pod-a/kill", `{"by": "ops", "reason": "a test", "dry_run": true}`).has(t, 200, "latch the pod in redis")
	if after := s.dump(); !maps.Equal(before, after) {
		t.Error("the stores changed")
	}

	srv.operate("GET", "/v1/pods", "").has(t, 200, `"pod":"pod-a"`, `"stage":"redis"`, "Stays in redis, as the flag says")
	s.want(0, []string{"now        redis at epoch 1", "Stays in redis"}, "status", "--url", srv.url)
	s.want(1, []string{"is the server running"}, "status", "--url", "http://127.0.0.1:1")
	srv.operate("POST", "/v1/pods/pod-a/verify", "").has(t, 200, `"clean":true`)
	srv.operate("GET", "/v1/pods/pod-a/report", "").has(t, 200, `"verdict"`)
	srv.operate("POST", "/v1/pods/pod-a/kill", why).has(t, 200, `"already":false`, `"latched":true`, `checkout-1 (`, `"next":`)
	srv.operate("POST", "/v1/pods/pod-a/kill", why).has(t, 200, `"already":true`)
	srv.operate("GET", "/v1/pods/pod-a", "").has(t, 200, "Latched in redis by ops (a test)")
	srv.operate("POST", "/v1/pods/pod-a/restore", why).has(t, 200, "the latch is off")
}

// TestNoTokenNoOperator: without a configured token the routes are closed.
func TestNoTokenNoOperator(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	file := s.configure("open")
	text := strings.Replace(readText(t, file), "operator_token: "+operatorToken+"\n", "", 1)
	s.write("holdover-open.yaml", text)
	srv := s.serveFile(s.dir + "/holdover-open.yaml").ready()
	srv.operate("GET", "/v1/pods", "").has(t, 403, "no operator token is configured")
}

// TestNotReadyWithoutFenceAndFlags: nothing is guessed; the reason is named,
// and a flag file that turns good begins the pod.
func TestNotReadyWithoutFenceAndFlags(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a").stocked()
	s.write("stages.json", `{"flags": {"holdover-stage": {"state": "ENABLED", "variants": {"redis": "redis"}, "defaultVariant": "rediss"}}}`)
	before := s.dump()
	srv := s.serve("checkout-1")
	srv.get("/readyz").has(t, 503, "pod pod-a", "no fence", "rediss", "stages.json")
	srv.get("/healthz").has(t, 200)
	srv.post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 503, "not-ready")
	s.want(0, []string{"Not begun", "rediss"}, "status")
	s.want(1, []string{"nothing to flip to"}, "kill", "--reason", "x")
	if after := s.dump(); !maps.Equal(before, after) {
		t.Error("the stores changed")
	}
	s.flag("redis")
	srv.ready().post(reservations, reserveBody(holdover.NewToken().String(), 1)).has(t, 201)
	srv.close(0)
}

// TestSameName: two processes of one name are told apart, and a stray one is
// seen by it.
func TestSameName(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	s.serve("checkout-1").ready()
	s.serve("checkout-1").ready()
	var status struct {
		Pods []struct{ Instances []holdover.Instance }
	}
	eventually(t, "both are seen", func() bool {
		s.object(0, &status, "status")
		return len(status.Pods[0].Instances) == 2
	})
	if i := status.Pods[0].Instances; i[0].Name != i[1].Name || i[0].ID == i[1].ID || i[0].ID == "" {
		t.Errorf("%+v", i)
	}
	s.want(0, []string{"2 instances"}, "kill", "--reason", "both must be named")
}

func TestListenFails(t *testing.T) {
	s := newSite(t, "pod-a").stocked()
	srv := s.serve("checkout-1")
	a := runArgs(context.Background(), "", "serve", "--config", s.file, "--listen", strings.TrimPrefix(srv.url, "http://"))
	if a.code != 1 || !strings.Contains(a.stderr, "address already in use") {
		t.Errorf("exit %d\n%s", a.code, a.stderr)
	}
}
