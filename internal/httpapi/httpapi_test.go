package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdover"
	"holdover/internal/httpapi"
)

// scripted is a Reserver that says what the test wants and counts who asked.
type scripted struct {
	calls atomic.Int64
	last  atomic.Pointer[holdover.Request]
	part  atomic.Pointer[[]holdover.Line] // of the last claim
	ttl   atomic.Int64                    // of the last extension
	do    func(ctx context.Context, op string) (holdover.Result, error)
}

func (s *scripted) say(ctx context.Context, op string) (holdover.Result, error) {
	s.calls.Add(1)
	return s.do(ctx, op)
}

func (s *scripted) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	s.last.Store(&r)
	return s.say(ctx, "reserve")
}
func (s *scripted) Claim(ctx context.Context, _ int64, _ holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	s.part.Store(&lines)
	return s.say(ctx, "claim")
}
func (s *scripted) Extend(ctx context.Context, _ int64, _ holdover.Token, ttl time.Duration) (holdover.Result, error) {
	s.ttl.Store(int64(ttl))
	return s.say(ctx, "extend")
}
func (s *scripted) Release(ctx context.Context, _ int64, _ holdover.Token) (holdover.Result, error) {
	return s.say(ctx, "release")
}
func (s *scripted) Lookup(ctx context.Context, _ int64, _ holdover.Token) (holdover.Result, error) {
	return s.say(ctx, "lookup")
}

// console is a scripted Operator.
type console struct {
	status func(ctx context.Context) (httpapi.PodStatus, error)
	act    func(ctx context.Context, what, by, reason string, dry bool) (any, error)
}

func (c *console) Status(ctx context.Context) (httpapi.PodStatus, error) { return c.status(ctx) }
func (c *console) Kill(ctx context.Context, by, reason string, dry bool) (any, error) {
	return c.act(ctx, "kill", by, reason, dry)
}
func (c *console) Restore(ctx context.Context, by, reason string, dry bool) (any, error) {
	return c.act(ctx, "restore", by, reason, dry)
}
func (c *console) Report(ctx context.Context, r httpapi.ReportRequest) (httpapi.ReportPage, error) {
	v, err := c.act(ctx, "report "+r.Format, r.Since, r.Until, false)
	if err != nil {
		return httpapi.ReportPage{}, err
	}
	if r.Format != "json" {
		return httpapi.ReportPage{ContentType: "text/" + r.Format, Body: []byte("<p>" + r.Since)}, nil
	}
	body, err := json.Marshal(v)
	return httpapi.ReportPage{ContentType: "application/json", Body: body}, err
}
func (c *console) Sign(ctx context.Context, r httpapi.SignRequest) (any, error) {
	return c.act(ctx, "sign "+r.Decision+" since "+r.Since, r.As, r.Note, false)
}
func (c *console) Verify(ctx context.Context, r httpapi.VerifyRequest) (any, error) {
	if r.Repair {
		return c.act(ctx, fmt.Sprintf("repair, counters %t", r.Counters), r.By, r.Reason, r.DryRun)
	}
	return c.act(ctx, "verify", "", "", false)
}
func (c *console) Adjust(ctx context.Context, a holdover.Adjustment, dry bool) (any, error) {
	return c.act(ctx, "adjust "+a.Token.String()+" "+a.Content(), a.By, a.Reason, dry)
}

const (
	secret = "a token that only operators know"
	token  = "123e4567-e89b-42d3-a456-426614174000"
	good   = `{"token":"` + token + `","ttl_seconds":60,"lines":[{"item_id":7,"group_id":1,"quantity":2}]}`
)

var shown = httpapi.Decision{Pod: "a", Stage: "joint", Epoch: 9, Store: "redis", Reason: "redis decides"}

var decision = holdover.Decision{Pod: "a", Stage: holdover.StageJoint, Epoch: 9, Store: holdover.StoreRedis, Reason: "redis decides"}

// logs collects what the server logs.
type logs struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type stand struct {
	*httptest.Server
	reserver *scripted
	operator *console
	panics   atomic.Int64
	logs     logs
}

// serve starts a server with pod "a" for shops below 100 and pod "b" for shops below 200.
func serve(t *testing.T, change func(*httpapi.Config)) *stand {
	t.Helper()
	s := &stand{reserver: &scripted{}, operator: &console{}}
	s.reserver.do = func(context.Context, string) (holdover.Result, error) {
		return holdover.Result{Decision: decision}, nil
	}
	c := httpapi.Config{
		Pods: []httpapi.Pod{
			{Name: "a", Shops: func(shop int64) bool { return shop < 100 }, Reserver: s.reserver, Operator: s.operator},
			{Name: "b", Shops: func(shop int64) bool { return shop < 200 }, Reserver: &scripted{do: func(context.Context, string) (holdover.Result, error) {
				return holdover.Result{}, nil
			}}},
		},
		OperatorToken: secret,
		OnPanic:       func() { s.panics.Add(1) },
		Logger:        slog.New(slog.NewTextHandler(&s.logs, nil)),
		Metrics:       http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }),
		Version:       "1.2.3",
	}
	if change != nil {
		change(&c)
	}
	h, err := httpapi.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewUnstartedServer(h)
	s.Config = httpapi.Server("", h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&s.logs, nil), slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// call sends one request; header is a list of names and values.
func (s *stand) call(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// problem sends one request and reads the problem that comes back.
func (s *stand) problem(t *testing.T, method, path, body string, header ...string) (*http.Response, httpapi.Problem) {
	t.Helper()
	resp, b := s.call(t, method, path, body, header...)
	var p httpapi.Problem
	if err := json.Unmarshal([]byte(b), &p); err != nil {
		t.Fatalf("%s %s: %d %s: %v", method, path, resp.StatusCode, b, err)
	}
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("%s %s: content type %q of %s", method, path, ct, b)
	}
	if p.Status != resp.StatusCode || p.Title == "" || !strings.HasPrefix(p.Type, "urn:holdover:") {
		t.Errorf("%s %s: status %d with an incomplete problem: %s", method, path, resp.StatusCode, b)
	}
	return resp, p
}

const reservations = "/v1/shops/5/reservations"

func TestReservation(t *testing.T) {
	granted := time.Date(2030, 1, 2, 3, 4, 5, 6_700_000, time.FixedZone("", 3600))
	tok, _ := holdover.ParseToken(token)
	hold := holdover.Hold{Token: tok, Shop: 5, Lines: []holdover.Line{{Item: 7, Group: 1, Quantity: 2}}, GrantedAt: granted, ExpiresAt: granted.Add(time.Minute)}
	for _, c := range []struct {
		name, method, path, body, op string
		state                        holdover.State
		replayed, pending            bool
		status                       int
	}{
		{"granted", "POST", "", good, "reserve", holdover.StateHeld, false, false, 201},
		{"replayed", "POST", "", good, "reserve", holdover.StateHeld, true, false, 200},
		{"looked up", "GET", "/" + token, "", "lookup", holdover.StateReleased, false, false, 200},
		{"claimed", "POST", "/" + token + "/claim", "", "claim", holdover.StateClaimed, false, false, 200},
		{"claimed again", "POST", "/" + token + "/claim", "", "claim", holdover.StateClaimed, true, false, 200},
		{"pending", "POST", "/" + token + "/claim", "", "claim", holdover.StateClaiming, false, true, 202},
		{"pending again", "POST", "/" + token + "/claim", "", "claim", holdover.StateClaiming, true, true, 202},
		{"released", "POST", "/" + token + "/release", "", "release", holdover.StateReleased, false, false, 200},
		{"extended", "POST", "/" + token + "/extend", `{"ttl_seconds":60}`, "extend", holdover.StateHeld, false, false, 200},
		{"extended already", "POST", "/" + token + "/extend", `{"ttl_seconds":60}`, "extend", holdover.StateHeld, true, false, 200},
		{"a part claimed", "POST", "/" + token + "/claim", `{"lines":[{"item_id":7,"group_id":1,"quantity":1}]}`, "claim", holdover.StateClaimed, false, false, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, nil)
			s.reserver.do = func(_ context.Context, op string) (holdover.Result, error) {
				if op != c.op {
					t.Errorf("the reserver was asked to %s", op)
				}
				h := hold
				h.State = c.state
				return holdover.Result{Hold: h, Replayed: c.replayed, Pending: c.pending, Decision: decision}, nil
			}
			resp, body := s.call(t, c.method, reservations+c.path, c.body)
			if resp.StatusCode != c.status {
				t.Fatalf("status %d: %s", resp.StatusCode, body)
			}
			var got httpapi.Reservation
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Fatal(err)
			}
			if got.Token != token || got.ShopID != 5 || got.State != c.state.String() || got.Replayed != c.replayed || got.Pending != c.pending ||
				got.ExpiresAt != "2030-01-02T02:05:05.006Z" || got.GrantedAt != "2030-01-02T02:04:05.006Z" ||
				len(got.Lines) != 1 || got.Lines[0] != hold.Lines[0] || got.Decision != shown {
				t.Errorf("got %s", body)
			}
			if n := s.reserver.calls.Load(); n != 1 {
				t.Errorf("the reserver was asked %d times", n)
			}
		})
	}
}

func TestReserveIsNormalized(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.DefaultTTL = 90 * time.Second })
	body := `{"token":"` + token + `","ttl_seconds":null,"lines":[{"item_id":9223372036854775807,"group_id":2,"quantity":1},{"item_id":3,"group_id":2,"quantity":1},{"quantity":4,"item_id":3,"group_id":2}]}`
	if resp, b := s.call(t, "POST", reservations, body, "Content-Type", "application/json; charset=UTF-8"); resp.StatusCode != 201 {
		t.Fatalf("%d %s", resp.StatusCode, b)
	}
	r := s.reserver.last.Load()
	if r.Shop != 5 || r.Token.String() != token || r.TTL != 90*time.Second || len(r.Lines) != 2 ||
		r.Lines[0] != (holdover.Line{Item: 3, Group: 2, Quantity: 5}) || r.Lines[1] != (holdover.Line{Item: 9223372036854775807, Group: 2, Quantity: 1}) {
		t.Errorf("the reserver got %+v", *r)
	}
}

func TestShopsGoToTheirPod(t *testing.T) {
	s := serve(t, nil)
	if resp, b := s.call(t, "GET", "/v1/shops/150/reservations/"+token, ""); resp.StatusCode != 200 || !strings.Contains(b, `"pod":"b"`) {
		t.Errorf("shop 150 should be pod b's: %d %s", resp.StatusCode, b)
	}
	_, p := s.problem(t, "POST", "/v1/shops/200/reservations", good)
	if p.Status != 404 || p.Type != "urn:holdover:unknown-shop" || p.Decision != nil {
		t.Errorf("got %+v", p)
	}
	if n := s.reserver.calls.Load(); n != 0 {
		t.Errorf("pod a was asked %d times", n)
	}
}

func TestHealth(t *testing.T) {
	ready := atomic.Bool{}
	s := serve(t, func(c *httpapi.Config) {
		c.Ready = func() (bool, []string) {
			return ready.Load(), []string{"pod a has no agreed stage"}
		}
	})
	if resp, b := s.call(t, "GET", "/healthz", ""); resp.StatusCode != 200 || !strings.Contains(b, `"version":"1.2.3"`) || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("healthz: %d %s %v", resp.StatusCode, b, resp.Header)
	}
	resp, p := s.problem(t, "GET", "/readyz", "")
	if p.Status != 503 || len(p.Reasons) != 1 || p.Reasons[0] != "pod a has no agreed stage" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("readyz: %+v", p)
	}
	ready.Store(true)
	if resp, b := s.call(t, "GET", "/readyz", ""); resp.StatusCode != 200 {
		t.Errorf("readyz: %d %s", resp.StatusCode, b)
	}
	if resp, b := s.call(t, "GET", "/metrics", ""); resp.StatusCode != 200 || b != "up 1\n" {
		t.Errorf("metrics: %d %s", resp.StatusCode, b)
	}
}

func TestConfigIsChecked(t *testing.T) {
	pod := httpapi.Pod{Name: "a", Shops: func(int64) bool { return true }, Reserver: &scripted{}}
	nameless, shopless, mute := pod, pod, pod
	nameless.Name, shopless.Shops, mute.Reserver = "a/b", nil, nil
	for name, c := range map[string]httpapi.Config{
		"no pods":       {},
		"twice":         {Pods: []httpapi.Pod{pod, pod}},
		"bad name":      {Pods: []httpapi.Pod{nameless}},
		"no shops":      {Pods: []httpapi.Pod{shopless}},
		"no reserver":   {Pods: []httpapi.Pod{mute}},
		"negative body": {Pods: []httpapi.Pod{pod}, MaxBody: -1},
		"odd token":     {Pods: []httpapi.Pod{pod}, OperatorToken: "secret\n"},
		"long ttl":      {Pods: []httpapi.Pod{pod}, DefaultTTL: 48 * time.Hour},
	} {
		if _, err := httpapi.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := httpapi.New(httpapi.Config{Pods: []httpapi.Pod{pod}}); err != nil {
		t.Error(err)
	}
}
