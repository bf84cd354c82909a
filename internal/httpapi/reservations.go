package httpapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"holdover"
)

// ReserveRequest is the body of a reserve.
type ReserveRequest struct {
	Token      string        `json:"token" format:"uuid" doc:"Chosen by the caller, a random UUID for each reservation: the idempotency key."`
	TTLSeconds *int64        `json:"ttl_seconds,omitempty" minimum:"1" doc:"How long the hold lives; the server's default when absent."`
	Lines      []LineRequest `json:"lines" minItems:"1" nullable:"false" doc:"All of them or nothing."`
}

// LineRequest is one line of a reserve.
type LineRequest struct {
	ItemID   int64 `json:"item_id" minimum:"1"`
	GroupID  int64 `json:"group_id" minimum:"1" doc:"The location."`
	Quantity int64 `json:"quantity" minimum:"1"`
}

// Reservation is the answer of the reservation routes.
type Reservation struct {
	Token     string          `json:"token" format:"uuid"`
	ShopID    int64           `json:"shop_id"`
	State     string          `json:"state" enum:"none,held,claiming,claimed,released,expired"`
	Lines     []holdover.Line `json:"lines" nullable:"false" doc:"Sorted by item and location, repeated lines merged."`
	ExpiresAt string          `json:"expires_at,omitempty" format:"date-time" doc:"By the clock of the store that granted it."`
	GrantedAt string          `json:"granted_at,omitempty" format:"date-time"`
	Replayed  bool            `json:"replayed" doc:"The same answer was given before."`
	Pending   bool            `json:"pending" doc:"A claim that is certain and not yet in the ledger: it will be applied exactly once."`
	Decision  Decision        `json:"decision" doc:"Who decided, under which agreement, and why."`
}

type reserveInput struct {
	Shop int64 `path:"shop" minimum:"1"`
	Body ReserveRequest
}

type holdInput struct {
	Shop  int64  `path:"shop" minimum:"1"`
	Token string `path:"token" format:"uuid"`
}

type reservationOutput struct {
	Status int
	Body   Reservation
}

func (a *api) registerReservations(routes huma.API) {
	const base = "/v1/shops/{shop}/reservations"
	register := func(op huma.Operation, also ...int) huma.Operation {
		op.Tags = []string{"reservations"}
		document(routes, &op, reflect.TypeFor[Reservation](), also, 404, 409, 410, 422, 500, 503)
		return op
	}
	huma.Register(routes, register(huma.Operation{OperationID: "reserve", Method: http.MethodPost, Path: base,
		Summary: "Reserve all lines or nothing", DefaultStatus: http.StatusCreated}, 200, 201), a.reserve)
	huma.Register(routes, register(huma.Operation{OperationID: "look-up", Method: http.MethodGet, Path: base + "/{token}",
		Summary: "Look a hold up"}, 200), a.onHold(holdover.Reserver.Lookup))
	huma.Register(routes, register(huma.Operation{OperationID: "claim", Method: http.MethodPost, Path: base + "/{token}/claim",
		Summary: "Deduct the hold from the ledger, exactly once"}, 200, 202), a.onHold(holdover.Reserver.Claim))
	huma.Register(routes, register(huma.Operation{OperationID: "release", Method: http.MethodPost, Path: base + "/{token}/release",
		Summary: "Give the units back"}, 200), a.onHold(holdover.Reserver.Release))
}

func (a *api) reserve(ctx context.Context, in *reserveInput) (*reservationOutput, error) {
	req, err := a.request(in)
	if err != nil {
		return nil, err
	}
	pod, err := a.podOf(in.Shop)
	if err != nil {
		return nil, err
	}
	res, err := pod.Reserver.Reserve(ctx, req)
	return a.answer(pod, res, err, http.StatusCreated)
}

// onHold is the handler of an operation on one token.
func (a *api) onHold(do func(r holdover.Reserver, ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error)) func(context.Context, *holdInput) (*reservationOutput, error) {
	return func(ctx context.Context, in *holdInput) (*reservationOutput, error) {
		token, err := holdover.ParseToken(in.Token)
		if err != nil {
			return nil, a.invalid("path.", err)
		}
		pod, err := a.podOf(in.Shop)
		if err != nil {
			return nil, err
		}
		res, err := do(pod.Reserver, ctx, in.Shop, token)
		return a.answer(pod, res, err, http.StatusOK)
	}
}

// request checks a reserve as a whole. Every problem is named with its field.
func (a *api) request(in *reserveInput) (holdover.Request, error) {
	token, err := holdover.ParseToken(in.Body.Token)
	if err != nil {
		return holdover.Request{}, a.invalid("body.", err)
	}
	r := holdover.Request{Shop: in.Shop, Token: token, TTL: a.DefaultTTL, Lines: make([]holdover.Line, len(in.Body.Lines))}
	if s := in.Body.TTLSeconds; s != nil {
		r.TTL = time.Duration(min(*s, int64(math.MaxInt64/time.Second))) * time.Second
	}
	for i, l := range in.Body.Lines {
		r.Lines[i] = holdover.Line{Item: l.ItemID, Group: l.GroupID, Quantity: l.Quantity}
	}
	normalized, err := r.Normalize(a.Limits)
	if err == nil {
		return normalized, nil
	}
	p := a.invalid("body.", err)
	// Normalize stops at the first problem and names no index: ask it for each line.
	var each []FieldProblem
	for i, line := range r.Lines {
		one := r
		one.Lines = []holdover.Line{line}
		var bad *holdover.InvalidError
		if _, err := one.Normalize(a.Limits); errors.As(err, &bad) && bad.Field != "ttl" {
			each = append(each, FieldProblem{Field: fmt.Sprintf("body.lines[%d].%s", i, bad.Field), Problem: bad.Problem, Value: clip(bad.Value)})
		}
	}
	if len(each) > 0 {
		p.Errors = each
	}
	return r, p
}

// invalid is the problem of an *InvalidError, its field named as the client sent it.
func (a *api) invalid(where string, err error) *Problem {
	p := a.problemOf(err, holdover.Decision{})
	for i := range p.Errors {
		switch f := &p.Errors[i]; f.Field {
		case "ttl":
			f.Field = where + "ttl_seconds"
		case "quantity": // the sum of repeated lines
			f.Field = where + "lines"
		default:
			f.Field = where + f.Field
		}
	}
	return p
}

// answer turns a Reserver's answer into ours; fresh is the status of one that
// was given for the first time.
func (a *api) answer(pod *Pod, res holdover.Result, err error, fresh int) (*reservationOutput, error) {
	d := res.Decision
	if d.Pod == "" {
		d.Pod = pod.Name
	}
	if err != nil {
		return nil, a.problemOf(err, d)
	}
	h := res.Hold
	out := &reservationOutput{Status: fresh, Body: Reservation{
		Token: h.Token.String(), ShopID: h.Shop, State: h.State.String(), Lines: h.Lines,
		ExpiresAt: instant(h.ExpiresAt), GrantedAt: instant(h.GrantedAt),
		Replayed: res.Replayed, Pending: res.Pending, Decision: *decisionOf(d),
	}}
	if out.Body.Lines == nil {
		out.Body.Lines = []holdover.Line{}
	}
	switch {
	case res.Pending:
		out.Status = http.StatusAccepted
	case res.Replayed:
		out.Status = http.StatusOK
	}
	return out, nil
}

// instant is RFC 3339 with milliseconds, in UTC; empty for the zero time.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// document names the answers of an operation: ok ones with the body's type,
// the others with Problem. It also takes the reading of the body from huma.
func document(routes huma.API, op *huma.Operation, body reflect.Type, ok []int, failed ...int) {
	op.BodyReadTimeout, op.MaxBodyBytes = -1, -1 // readBody has read it, within its own bounds
	schemas := routes.OpenAPI().Components.Schemas
	op.Responses = map[string]*huma.Response{}
	add := func(code int, contentType string, t reflect.Type) {
		op.Responses[strconv.Itoa(code)] = &huma.Response{Description: http.StatusText(code),
			Content: map[string]*huma.MediaType{contentType: {Schema: schemas.Schema(t, true, "")}}}
	}
	for _, code := range ok {
		add(code, "application/json", body)
	}
	for _, code := range failed {
		add(code, "application/problem+json", reflect.TypeFor[Problem]())
	}
	if op.Method == http.MethodPost {
		for _, code := range []int{400, 403, 408, 413, 415} {
			add(code, "application/problem+json", reflect.TypeFor[Problem]())
		}
	}
}
