package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/internal/httpapi"
)

// routesOf reads the server's OpenAPI document: path -> method -> operation.
func routesOf(t *testing.T, s *stand) map[string]map[string]struct {
	Security  []map[string][]string
	Responses map[string]json.RawMessage
} {
	t.Helper()
	resp, b := s.call(t, "GET", "/openapi.json", "")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/openapi+json" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	var doc struct {
		OpenAPI string
		Info    struct{ Title, Version string }
		Paths   map[string]map[string]struct {
			Security  []map[string][]string
			Responses map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(b), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI == "" || doc.Info.Title != "holdover" || doc.Info.Version != "1.2.3" {
		t.Errorf("the document's head: %+v", doc)
	}
	return doc.Paths
}

func TestOpenAPIListsEveryRoute(t *testing.T) {
	paths := routesOf(t, serve(t, nil))
	want := map[string]string{ // route -> an answer that must be documented
		"POST /v1/shops/{shop}/reservations":                 "201",
		"GET /v1/shops/{shop}/reservations/{token}":          "200",
		"POST /v1/shops/{shop}/reservations/{token}/claim":   "202",
		"POST /v1/shops/{shop}/reservations/{token}/extend":  "200",
		"POST /v1/shops/{shop}/reservations/{token}/release": "410",
		"POST /v1/shops/{shop}/adjustments":                  "409",
		"GET /v1/pods":                                       "401",
		"GET /v1/pods/{pod}":                                 "404",
		"POST /v1/pods/{pod}/kill":                           "409",
		"POST /v1/pods/{pod}/restore":                        "409",
		"GET /v1/pods/{pod}/report":                          "200",
		"POST /v1/pods/{pod}/report/sign":                    "200",
		"POST /v1/pods/{pod}/verify":                         "200",
		"GET /healthz":                                       "200",
		"GET /readyz":                                        "503",
		"GET /metrics":                                       "200",
		"GET /openapi.json":                                  "200",
	}
	for path, methods := range paths {
		for method, op := range methods {
			route := strings.ToUpper(method) + " " + path
			answer, ok := want[route]
			if !ok {
				t.Errorf("%s is not in this test", route)
				continue
			}
			delete(want, route)
			if _, ok := op.Responses[answer]; !ok {
				t.Errorf("%s doesn't document %s", route, answer)
			}
			if forOperators(path) != (len(op.Security) > 0) {
				t.Errorf("%s: security %v", route, op.Security)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

// forOperators: these routes need the operator's token.
func forOperators(path string) bool {
	return strings.HasPrefix(path, "/v1/pods") || strings.HasSuffix(path, "/adjustments")
}

func TestOperatorRoutesNeedTheToken(t *testing.T) {
	s := serve(t, nil)
	s.operator.status = func(context.Context) (httpapi.PodStatus, error) {
		t.Error("a status was read without the token")
		return httpapi.PodStatus{}, nil
	}
	s.operator.act = func(context.Context, string, string, string, bool) (any, error) {
		t.Error("a command ran without the token")
		return nil, nil
	}
	off := serve(t, func(c *httpapi.Config) { c.OperatorToken = "" })
	n := 0
	for path, methods := range routesOf(t, s) {
		if !forOperators(path) {
			continue
		}
		path = strings.NewReplacer("{pod}", "a", "{shop}", "5").Replace(path)
		for method := range methods {
			n++
			method = strings.ToUpper(method)
			for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + secret, secret, "Bearer " + secret + "x", "Bearer " + secret[1:]} {
				resp, p := s.problem(t, method, path, `{"by":"me","reason":"test"}`, "Authorization", auth)
				if p.Status != 401 || !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer ") {
					t.Errorf("%s %s with %q: %d %v", method, path, auth, p.Status, resp.Header)
				}
			}
			for _, auth := range []string{"", "Bearer", "Bearer " + secret} {
				if _, p := off.problem(t, method, path, "", "Authorization", auth); p.Status != 403 || !strings.Contains(p.Do, "token") {
					t.Errorf("%s %s without a configured token: %+v", method, path, p)
				}
			}
		}
	}
	if n != 8 {
		t.Errorf("%d operator routes were tried", n)
	}
}

func TestClient(t *testing.T) {
	s := serve(t, nil)
	fence := &holdover.Fence{Pod: "a", Epoch: 7, Stage: holdover.StageShadow, Latched: true, By: "me", Reason: "test", At: time.Unix(1, 0).UTC()}
	s.operator.status = func(ctx context.Context) (httpapi.PodStatus, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the call has no deadline")
		}
		return httpapi.PodStatus{Agreed: fence, Redis: fence, Desired: httpapi.Desired{Stage: "unknown"}, Next: "restore",
			Instances: []httpapi.InstanceStatus{{Name: "one", ID: "x", Epoch: 7, AgeMS: 5}},
			Readiness: httpapi.Readiness{Forward: httpapi.Verdict{Reasons: []httpapi.Reason{{Code: "latched", Text: "the pod is latched", Number: 1, Do: "restore"}}}}}, nil
	}
	s.operator.act = func(ctx context.Context, what, by, reason string, dry bool) (any, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the call has no deadline")
		}
		return map[string]any{"what": what, "by": by, "reason": reason, "dry": dry}, nil
	}
	ctx := t.Context()
	c := &httpapi.Client{BaseURL: s.URL + "/", Token: secret, HTTP: s.Client()}

	pods, err := c.Pods(ctx)
	if err != nil || len(pods) != 2 || pods[0].Pod != "a" || *pods[0].Agreed != *fence || pods[0].MySQL != nil || pods[0].Next != "restore" ||
		pods[0].Instances[0].Name != "one" || pods[0].Readiness.Forward.Reasons[0].Do != "restore" {
		t.Errorf("pods: %+v, %v", pods, err)
	}
	if pods[1].Pod != "b" || !strings.Contains(pods[1].Problem, "no operator") {
		t.Errorf("pod b has no operator and must say so: %+v", pods[1])
	}
	if p, err := c.Pod(ctx, "a"); err != nil || p.Pod != "a" || p.Agreed.Epoch != 7 {
		t.Errorf("pod: %+v, %v", p, err)
	}
	for what, do := range map[string]func() (json.RawMessage, error){
		`{"by":"me","dry":true,"reason":"why","what":"kill"}`:      func() (json.RawMessage, error) { return c.Kill(ctx, "a", "me", "why", true) },
		`{"by":"me","dry":false,"reason":"why","what":"restore"}`:  func() (json.RawMessage, error) { return c.Restore(ctx, "a", "me", "why", false) },
		`{"by":"7d","dry":false,"reason":"","what":"report json"}`: func() (json.RawMessage, error) { return c.Report(ctx, "a", "") },
		`{"by":"2026-01-02T03:04:05+01:00","dry":false,"reason":"","what":"report json"}`: func() (json.RawMessage, error) {
			return c.Report(ctx, "a", "2026-01-02T03:04:05+01:00")
		},
		`{"by":"me","dry":false,"reason":"why","what":"sign no-go since 7d"}`: func() (json.RawMessage, error) {
			return c.Sign(ctx, "a", httpapi.SignRequest{As: "me", Decision: "no-go", Note: "why", Since: "7d"})
		},
		`{"by":"me","dry":true,"reason":"why","what":"repair, counters true"}`: func() (json.RawMessage, error) {
			return c.Repair(ctx, "a", httpapi.VerifyRequest{By: "me", Reason: "why", DryRun: true, Counters: true})
		},
		`{"by":"","dry":false,"reason":"","what":"verify"}`: func() (json.RawMessage, error) { return c.Verify(ctx, "a") },
	} {
		if b, err := do(); err != nil || strings.TrimSpace(string(b)) != what {
			t.Errorf("want %s, got %s, %v", what, b, err)
		}
	}
}

func TestClientErrors(t *testing.T) {
	s := serve(t, nil)
	asked := 0
	s.operator.act = func(context.Context, string, string, string, bool) (any, error) {
		asked++
		return nil, fmt.Errorf("kill: %w", &httpapi.RefusedError{Detail: "pod a is in mysql-only", Do: "rebuild Redis first"})
	}
	ctx := t.Context()
	c := &httpapi.Client{BaseURL: s.URL, Token: secret, HTTP: s.Client()}
	check := func(name string, err error, status int, words ...string) {
		t.Helper()
		var p *httpapi.Problem
		if !errors.As(err, &p) || p.Status != status {
			t.Errorf("%s: got %v", name, err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q doesn't say %q", name, err, w)
			}
		}
	}
	_, err := c.Kill(ctx, "a", "me", "why", false)
	check("refused", err, 409, "Refused", "pod a is in mysql-only", "rebuild Redis first")
	_, err = c.Kill(ctx, "nowhere/../a", "me", "why", false)
	check("unknown pod", err, 404, "nowhere", "a, b")
	_, err = c.Kill(ctx, "b", "me", "why", false)
	check("no operator", err, 503, "pod b")
	_, err = c.Kill(ctx, "a", "", " ", false)
	check("no name, no reason", err, 422, "body.by", "body.reason")
	_, err = c.Restore(ctx, "a", "me", strings.Repeat("x", 501), false)
	check("long reason", err, 422, "body.reason")
	_, err = (&httpapi.Client{BaseURL: s.URL, Token: "wrong", HTTP: s.Client()}).Pods(ctx)
	check("wrong token", err, 401, "bearer token")
	if asked != 1 {
		t.Errorf("the operator was asked %d times", asked)
	}

	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) }))
	defer other.Close()
	_, err = (&httpapi.Client{BaseURL: other.URL}).Pods(ctx)
	check("a proxy", err, 502, "bad gateway", "address")
	other.Close()
	if _, err := (&httpapi.Client{BaseURL: other.URL}).Pods(ctx); err == nil || !strings.Contains(err.Error(), "running") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestClientGivesUp(t *testing.T) {
	s := serve(t, nil)
	s.operator.act = func(ctx context.Context, _, _, _ string, _ bool) (any, error) {
		<-ctx.Done() // the client leaves
		return nil, ctx.Err()
	}
	c := &httpapi.Client{BaseURL: s.URL, Token: secret, HTTP: s.Client(), Timeout: 20 * time.Millisecond}
	if _, err := c.Verify(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "may have happened") {
		t.Errorf("got %v", err)
	}
}

// A kill goes on to its end when the operator's connection is lost.
func TestKillOutlivesItsClient(t *testing.T) {
	started, done := make(chan struct{}), make(chan error, 1)
	gone := make(chan (<-chan struct{}), 1) // closed when the server has seen that the client left
	operator := &console{act: func(ctx context.Context, _, _, _ string, _ bool) (any, error) {
		close(started)
		<-<-gone
		done <- ctx.Err()
		return nil, nil
	}}
	h, err := httpapi.New(httpapi.Config{OperatorToken: secret,
		Pods: []httpapi.Pod{{Name: "a", Shops: func(int64) bool { return true }, Reserver: &scripted{}, Operator: operator}}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gone <- r.Context().Done()
		h.ServeHTTP(w, r)
	}))
	defer s.Close()
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-started
		leave()
	}()
	c := &httpapi.Client{BaseURL: s.URL, Token: secret, HTTP: s.Client()}
	if _, err := c.Kill(ctx, "a", "me", "why", false); err == nil {
		t.Error("the client should have given up")
	}
	if err := <-done; err != nil {
		t.Errorf("the kill was cancelled: %v", err)
	}
}

func TestOperatorCallHasADeadline(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.OperatorTimeout = 20 * time.Millisecond })
	s.operator.act = func(ctx context.Context, _, _, _ string, _ bool) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, path := range []string{"kill", "restore", "verify"} {
		_, p := s.problem(t, "POST", "/v1/pods/a/"+path, `{"by":"me","reason":"why"}`, "Authorization", "Bearer "+secret)
		if p.Status != 503 || p.Type != "urn:holdover:outcome-unknown" {
			t.Errorf("%s: %+v", path, p)
		}
	}
}

func TestStatusOfABrokenPod(t *testing.T) {
	s := serve(t, nil)
	s.operator.status = func(context.Context) (httpapi.PodStatus, error) { panic("status fell over") }
	c := &httpapi.Client{BaseURL: s.URL, Token: secret, HTTP: s.Client()}
	pods, err := c.Pods(t.Context())
	if err != nil || len(pods) != 2 || pods[0].Pod != "a" || pods[0].Problem == "" {
		t.Errorf("a panic of one pod's status must be its entry: %+v, %v", pods, err)
	}
	if n := s.panics.Load(); n != 1 {
		t.Errorf("counted %d", n)
	}
	s.operator.status = func(context.Context) (httpapi.PodStatus, error) {
		return httpapi.PodStatus{}, &holdover.StoreError{Store: holdover.StoreRedis, Pod: "a", Op: "fence", Err: errors.New("refused")}
	}
	var p *httpapi.Problem
	if _, err := c.Pod(t.Context(), "a"); !errors.As(err, &p) || p.Type != "urn:holdover:unavailable" {
		t.Errorf("got %v", err)
	}
}
