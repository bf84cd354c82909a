package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"holdover"
	"holdover/internal/httpapi"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

// overHTTP is a Reserver that asks the API, as a checkout in another language
// would: all that it knows of an answer is its status, type and members.
type overHTTP struct {
	url    string
	client *http.Client
}

func (o *overHTTP) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	// The API counts whole seconds: round up what is a legal time to live.
	seconds := int64(r.TTL / time.Second)
	if r.TTL >= 100*time.Millisecond && r.TTL%time.Second != 0 {
		seconds++
	}
	lines := []any{}
	for _, l := range r.Lines {
		lines = append(lines, l)
	}
	for _, c := range r.Choices {
		l := map[string]any{"item_id": c.Item, "group_ids": c.Groups, "quantity": c.Quantity}
		if c.Split {
			l["split"] = true
		}
		lines = append(lines, l)
	}
	return o.call(ctx, "POST", fmt.Sprintf("/v1/shops/%d/reservations", r.Shop),
		map[string]any{"token": r.Token, "ttl_seconds": seconds, "lines": lines})
}

func (o *overHTTP) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	var body any
	if len(lines) > 0 {
		body = map[string]any{"lines": lines}
	}
	return o.call(ctx, "POST", fmt.Sprintf("/v1/shops/%d/reservations/%s/claim", shop, token), body)
}

func (o *overHTTP) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	// Whole seconds, rounded up, as in Reserve.
	seconds := int64((ttl + time.Second - 1) / time.Second)
	return o.call(ctx, "POST", fmt.Sprintf("/v1/shops/%d/reservations/%s/extend", shop, token), map[string]any{"ttl_seconds": seconds})
}

func (o *overHTTP) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	return o.call(ctx, "POST", fmt.Sprintf("/v1/shops/%d/reservations/%s/release", shop, token), nil)
}

func (o *overHTTP) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	return o.call(ctx, "GET", fmt.Sprintf("/v1/shops/%d/reservations/%s", shop, token), nil)
}

func (o *overHTTP) call(ctx context.Context, method, path string, body any) (holdover.Result, error) {
	lost := func(err error) (holdover.Result, error) {
		return holdover.Result{Decision: holdover.Decision{Store: holdover.StoreRedis, Reason: "no answer"}},
			&holdover.StoreError{Store: holdover.StoreRedis, Op: method + " " + path, Unknown: true, Err: err}
	}
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return lost(err)
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, o.url+path, payload)
	if err != nil {
		return lost(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.client.Do(req)
	if err != nil {
		return lost(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return lost(err)
	}
	if resp.StatusCode >= 400 {
		var p httpapi.Problem
		if err := json.Unmarshal(answer, &p); err != nil {
			return lost(err)
		}
		res := holdover.Result{}
		if p.Decision != nil {
			res.Decision, err = decided(*p.Decision)
		}
		return res, errors.Join(err, rootError(path, &p))
	}
	var r httpapi.Reservation
	if err := json.Unmarshal(answer, &r); err != nil {
		return lost(err)
	}
	return result(r)
}

func result(r httpapi.Reservation) (res holdover.Result, err error) {
	var errs [6]error
	res.Replayed, res.Pending = r.Replayed, r.Pending
	res.Hold.Shop, res.Hold.Lines, res.Hold.Claimed = r.ShopID, r.Lines, r.Claimed
	if r.LateToken != "" {
		res.Hold.Late, errs[5] = holdover.ParseToken(r.LateToken)
	}
	res.Hold.Token, errs[0] = holdover.ParseToken(r.Token)
	res.Hold.State, errs[1] = holdover.ParseState(r.State)
	res.Hold.ExpiresAt, errs[2] = time.Parse(time.RFC3339, r.ExpiresAt)
	res.Hold.GrantedAt, errs[3] = time.Parse(time.RFC3339, r.GrantedAt)
	res.Decision, errs[4] = decided(r.Decision)
	return res, errors.Join(errs[:]...)
}

func decided(d httpapi.Decision) (holdover.Decision, error) {
	out := holdover.Decision{Pod: d.Pod, Epoch: d.Epoch, Reason: d.Reason}
	return out, out.Store.UnmarshalText([]byte(d.Store))
}

// rootError is the root's error of a problem.
func rootError(path string, p *httpapi.Problem) error {
	switch p.Type {
	case "urn:holdover:out-of-stock":
		return &holdover.OutOfStockError{Store: holdover.StoreRedis, Shop: shopIn(path), Short: p.Short}
	case "urn:holdover:late-claim":
		return &holdover.LateClaimError{Token: tokenIn(path, p.Detail), Store: holdover.StoreRedis, Shop: shopIn(path), Short: p.Short}
	case "urn:holdover:try-again":
		return holdover.ErrTryAgain
	case "urn:holdover:hold-ended":
		state, err := holdover.ParseState(p.State)
		return errors.Join(err, &holdover.EndedError{Token: tokenIn(path, p.Detail), State: state})
	case "urn:holdover:invalid", "urn:holdover:body-too-large":
		return &holdover.InvalidError{Field: "request", Problem: p.Error()}
	case "urn:holdover:token-reused":
		return holdover.ErrTokenReused
	case "urn:holdover:already-claimed":
		return holdover.ErrAlreadyClaimed
	case "urn:holdover:unknown-hold":
		return holdover.ErrUnknownHold
	case "urn:holdover:claim-pending":
		return holdover.ErrClaimPending
	case "urn:holdover:stock-not-loaded":
		return holdover.ErrNotLoaded
	case "urn:holdover:outcome-unknown":
		return holdover.ErrUnknownOutcome
	case "urn:holdover:unavailable":
		return holdover.ErrUnavailable
	default:
		return p
	}
}

func shopIn(path string) (shop int64) {
	_, _ = fmt.Sscanf(path, "/v1/shops/%d/", &shop)
	return shop
}

// tokenIn finds the hold that an answer speaks of: in the path, or, of a
// reserve, in the detail.
func tokenIn(path, detail string) holdover.Token {
	var shop int64
	var text string
	if n, _ := fmt.Sscanf(path, "/v1/shops/%d/reservations/%36s", &shop, &text); n < 2 {
		_, _ = fmt.Sscanf(detail, "hold %36s", &text)
	}
	token, _ := holdover.ParseToken(text)
	return token
}

// TestConformance runs the suite of every Reserver through the API: what a
// client can learn over HTTP is all that the contract promises.
func TestConformance(t *testing.T) {
	reservertest.Run(t, func(t *testing.T) reservertest.Fixture {
		m := model.New(model.Config{})
		const shop = 7
		h, err := httpapi.New(httpapi.Config{Pods: []httpapi.Pod{{Name: "a", Shops: func(int64) bool { return true }, Reserver: m}}})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return reservertest.Fixture{
			Reserver: &overHTTP{url: server.URL, client: server.Client()},
			Shop:     shop,
			Load:     func(_ *testing.T, stock map[[2]int64]int64) { m.Load(shop, stock) },
			Free: func(t *testing.T, item, group int64) int64 {
				units, loaded := m.Free(shop, item, group)
				if !loaded {
					t.Errorf("item %d at group %d has no stock record", item, group)
				}
				return units
			},
			Ledger: func(_ *testing.T, item int64) int64 { return m.Ledger(shop, item) },
			Expire: func(*testing.T) { m.Expire() },
			WaitExpired: func(t *testing.T, token holdover.Token) {
				res, err := m.Lookup(t.Context(), shop, token)
				if err != nil {
					t.Fatalf("waiting for an expiry: %v", err)
				}
				m.Advance(res.Hold.ExpiresAt.Sub(m.Now()))
			},
			Sequences: 5,
		}
	})
}
