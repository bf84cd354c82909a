package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"holdover"
	"holdover/internal/httpapi"
)

// httpBuyer is what one instance offers, asked over HTTP: the answers become
// the root's errors again, so that the auditor's book can be kept.
type httpBuyer struct {
	base  string // http://host:port
	name  string // of the instance
	http  *http.Client
	trail *trail
}

// answered is as much of an answer as a buyer needs.
type answered struct {
	Token     holdover.Token   `json:"token"`
	Shop      int64            `json:"shop_id"`
	State     string           `json:"state"`
	Lines     []holdover.Line  `json:"lines"`
	Claimed   []holdover.Line  `json:"claimed"`
	Late      string           `json:"late_token"`
	ExpiresAt time.Time        `json:"expires_at"`
	GrantedAt time.Time        `json:"granted_at"`
	Replayed  bool             `json:"replayed"`
	Pending   bool             `json:"pending"`
	Decision  httpapi.Decision `json:"decision"`
}

func (b *httpBuyer) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	ttl := int64(r.TTL / time.Second)
	body := httpapi.ReserveRequest{Token: r.Token.String(), TTLSeconds: &ttl}
	for _, l := range r.Lines {
		body.Lines = append(body.Lines, httpapi.LineRequest{ItemID: l.Item, GroupID: &l.Group, Quantity: l.Quantity})
	}
	return b.ask(ctx, call{op: "reserve", token: r.Token, lines: r.Lines}, http.MethodPost, fmt.Sprintf("/v1/shops/%d/reservations", r.Shop), body)
}

func (b *httpBuyer) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	var body any
	if len(lines) > 0 {
		part := httpapi.ClaimRequest{}
		for _, l := range lines {
			part.Lines = append(part.Lines, httpapi.ClaimLine{ItemID: l.Item, GroupID: l.Group, Quantity: l.Quantity})
		}
		body = part
	}
	return b.ask(ctx, call{op: "claim", token: token, lines: lines}, http.MethodPost, holdPath(shop, token)+"/claim", body)
}

func (b *httpBuyer) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	return b.ask(ctx, call{op: "extend", token: token}, http.MethodPost, holdPath(shop, token)+"/extend", httpapi.ExtendRequest{TTLSeconds: int64(ttl / time.Second)})
}

func (b *httpBuyer) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	return b.ask(ctx, call{op: "release", token: token}, http.MethodPost, holdPath(shop, token)+"/release", nil)
}

func (b *httpBuyer) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	return b.ask(ctx, call{op: "lookup", token: token}, http.MethodGet, holdPath(shop, token), nil)
}

func holdPath(shop int64, token holdover.Token) string {
	return fmt.Sprintf("/v1/shops/%d/reservations/%s", shop, token)
}

// ask makes one call and writes it into the trail.
func (b *httpBuyer) ask(ctx context.Context, c call, method, path string, body any) (holdover.Result, error) {
	c.instance = b.name
	n := b.trail.begin(c)
	res, err := b.send(ctx, c.token, method, path, body)
	b.trail.end(n, res, err)
	if c.op == "release" && errors.Is(err, holdover.ErrClaimPending) {
		// Whoever releases was told how it stands at this moment, and nothing of
		// what will become of it: the fact is what the claim's caller is told.
		err = fmt.Errorf("%w: %w", holdover.ErrTryAgain, err)
	}
	return res, err
}

const maxAnswer = 1 << 20

func (b *httpBuyer) send(ctx context.Context, token holdover.Token, method, path string, body any) (holdover.Result, error) {
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return holdover.Result{}, err
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.base+path, payload)
	if err != nil {
		return holdover.Result{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := b.http.Do(req)
	if err != nil {
		return holdover.Result{}, noAnswer(token, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return holdover.Result{}, noAnswer(token, err)
	}
	if resp.StatusCode < 300 {
		var a answered
		if err := json.Unmarshal(text, &a); err != nil {
			return holdover.Result{}, fmt.Errorf("an answer that can't be read: %w: %s", err, text)
		}
		return a.result()
	}
	var p httpapi.Problem
	if err := json.Unmarshal(text, &p); err != nil {
		return holdover.Result{}, fmt.Errorf("an error that can't be read: %w: %s", err, text)
	}
	return problem(token, p)
}

// noAnswer: whatever was sent may have been carried out.
func noAnswer(token holdover.Token, err error) error {
	return &holdover.StoreError{Store: holdover.StoreNone, Pod: podName, Op: "call an instance", Token: token, Unknown: true, Err: err}
}

func (a answered) result() (holdover.Result, error) {
	state, err := holdover.ParseState(a.State)
	res := holdover.Result{
		Hold:     holdover.Hold{Token: a.Token, Shop: a.Shop, State: state, Lines: a.Lines, Claimed: a.Claimed, ExpiresAt: a.ExpiresAt, GrantedAt: a.GrantedAt},
		Replayed: a.Replayed, Pending: a.Pending, Decision: decisionOf(a.Decision),
	}
	if a.Late != "" {
		late, lateErr := holdover.ParseToken(a.Late)
		res.Hold.Late, err = late, errors.Join(err, lateErr)
	}
	return res, err
}

func decisionOf(d httpapi.Decision) holdover.Decision {
	out := holdover.Decision{Pod: d.Pod, Epoch: d.Epoch, Reason: d.Reason}
	_ = out.Stage.UnmarshalText([]byte(d.Stage)) // "unknown" is the zero stage
	_ = out.Store.UnmarshalText([]byte(d.Store))
	return out
}

// sentinels are the problems that are an error without more to say.
var sentinels = map[string]error{
	"invalid": holdover.ErrInvalid, "token-reused": holdover.ErrTokenReused, "already-claimed": holdover.ErrAlreadyClaimed,
	"claim-pending": holdover.ErrClaimPending, "unknown-hold": holdover.ErrUnknownHold, "stock-not-loaded": holdover.ErrNotLoaded,
	"overloaded": holdover.ErrOverloaded, "try-again": holdover.ErrTryAgain, "not-ready": holdover.ErrNotReady, "stale-epoch": holdover.ErrStale,
}

const problemPrefix = "urn:holdover:"

// problem makes the root's error of an answer that is one.
func problem(token holdover.Token, p httpapi.Problem) (holdover.Result, error) {
	var res holdover.Result
	if p.Decision != nil {
		res.Decision = decisionOf(*p.Decision)
	}
	kind := p.Type
	if len(kind) > len(problemPrefix) {
		kind = kind[len(problemPrefix):]
	}
	state, stateErr := holdover.ParseState(p.State)
	switch kind {
	case "outcome-unknown", "unavailable", "no-fence":
		return res, &holdover.StoreError{Store: res.Decision.Store, Pod: podName, Op: kind, Token: token, Unknown: kind == "outcome-unknown", Err: errors.New(p.Detail)}
	case "out-of-stock":
		return res, &holdover.OutOfStockError{Store: res.Decision.Store, Short: p.Short}
	case "late-claim":
		return res, &holdover.LateClaimError{Token: token, Store: res.Decision.Store, Short: p.Short}
	case "hold-ended":
		return res, errors.Join(stateErr, &holdover.EndedError{Token: token, State: state})
	}
	if sentinel, ok := sentinels[kind]; ok {
		return res, fmt.Errorf("%w: %s", sentinel, p.Detail)
	}
	return res, fmt.Errorf("status %d, %s: %s", p.Status, p.Type, p.Detail)
}
