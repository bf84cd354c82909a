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

// LineRequest is one line of a reserve: at one location, or at one that the
// store picks out of a list.
type LineRequest struct {
	ItemID   int64   `json:"item_id" minimum:"1"`
	GroupID  *int64  `json:"group_id,omitempty" minimum:"1" doc:"The location. Exactly one of group_id and group_ids is there."`
	GroupIDs []int64 `json:"group_ids,omitempty" minItems:"1" nullable:"false" doc:"Locations in order of preference: all units are taken from the first that has them all. The answer's lines say which. Exactly one of group_id and group_ids is there."`
	Split    bool    `json:"split,omitempty" doc:"With group_ids: when no location has them all, take the units from several, in order of preference."`
	Quantity int64   `json:"quantity" minimum:"1"`
}

// ClaimRequest is the body of a claim; without one all lines are claimed.
type ClaimRequest struct {
	Lines []ClaimLine `json:"lines" minItems:"1" nullable:"false" doc:"A part of the hold: the rest is given back in the same step. A repeat must name the same part."`
}

// ClaimLine is one line of a part of a hold, as the hold has it, with its
// quantity or less.
type ClaimLine struct {
	ItemID   int64 `json:"item_id" minimum:"1"`
	GroupID  int64 `json:"group_id" minimum:"1"`
	Quantity int64 `json:"quantity" minimum:"1"`
}

// ExtendRequest is the body of an extension.
type ExtendRequest struct {
	TTLSeconds int64 `json:"ttl_seconds" minimum:"1" doc:"The hold lives at least that long from now, up to the server's limit from its grant."`
}

// Reservation is the answer of the reservation routes.
type Reservation struct {
	Token     string          `json:"token" format:"uuid"`
	ShopID    int64           `json:"shop_id"`
	State     string          `json:"state" enum:"none,held,claiming,claimed,released,expired"`
	Lines     []holdover.Line `json:"lines" nullable:"false" doc:"Sorted by item and location, repeated lines merged; where group_ids were asked for, the locations that the units are from."`
	Claimed   []holdover.Line `json:"claimed,omitempty" nullable:"false" doc:"What a claim took when it was a part of the lines; the rest was given back."`
	LateToken string          `json:"late_token,omitempty" format:"uuid" doc:"The hold had expired, and its units were taken again and claimed under this token: the ledger's entries have it."`
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

type claimInput struct {
	Shop  int64  `path:"shop" minimum:"1"`
	Token string `path:"token" format:"uuid"`
	Body  *ClaimRequest
}

type extendInput struct {
	Shop  int64  `path:"shop" minimum:"1"`
	Token string `path:"token" format:"uuid"`
	Body  ExtendRequest
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
		Summary: "Deduct the hold from the ledger, exactly once"}, 200, 202), a.claim)
	huma.Register(routes, register(huma.Operation{OperationID: "extend", Method: http.MethodPost, Path: base + "/{token}/extend",
		Summary: "Make the hold live longer"}, 200), a.extend)
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
		return a.hold(in.Shop, in.Token, func(r holdover.Reserver, token holdover.Token) (holdover.Result, error) {
			return do(r, ctx, in.Shop, token)
		})
	}
}

// hold finds the Reserver that do asks about the token, and answers.
func (a *api) hold(shop int64, name string, do func(r holdover.Reserver, token holdover.Token) (holdover.Result, error)) (*reservationOutput, error) {
	token, err := holdover.ParseToken(name)
	if err != nil {
		return nil, a.invalid("path.", err)
	}
	pod, err := a.podOf(shop)
	if err != nil {
		return nil, err
	}
	res, err := do(pod.Reserver, token)
	return a.answer(pod, res, err, http.StatusOK)
}

func (a *api) claim(ctx context.Context, in *claimInput) (*reservationOutput, error) {
	var lines []holdover.Line
	if in.Body != nil {
		for _, l := range in.Body.Lines {
			lines = append(lines, holdover.Line{Item: l.ItemID, Group: l.GroupID, Quantity: l.Quantity})
		}
	}
	return a.hold(in.Shop, in.Token, func(r holdover.Reserver, token holdover.Token) (holdover.Result, error) {
		return r.Claim(ctx, in.Shop, token, lines...)
	})
}

func (a *api) extend(ctx context.Context, in *extendInput) (*reservationOutput, error) {
	ttl := seconds(in.Body.TTLSeconds)
	if _, err := a.Limits.CheckExtension(ttl); err != nil {
		return nil, a.invalid("body.", err)
	}
	return a.hold(in.Shop, in.Token, func(r holdover.Reserver, token holdover.Token) (holdover.Result, error) {
		return r.Extend(ctx, in.Shop, token, ttl)
	})
}

// seconds is n seconds, or the longest duration there is.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(math.MaxInt64/time.Second))) * time.Second
}

// request checks a reserve as a whole. Every problem is named with its field.
func (a *api) request(in *reserveInput) (holdover.Request, error) {
	token, err := holdover.ParseToken(in.Body.Token)
	if err != nil {
		return holdover.Request{}, a.invalid("body.", err)
	}
	r := holdover.Request{Shop: in.Shop, Token: token, TTL: a.DefaultTTL}
	if s := in.Body.TTLSeconds; s != nil {
		r.TTL = seconds(*s)
	}
	for _, l := range in.Body.Lines {
		l.ask(&r)
	}
	normalized, err := r.Normalize(a.Limits)
	// Normalize stops at the first problem and names no index: each line is asked
	// for alone.
	var each []FieldProblem
	for i, l := range in.Body.Lines {
		field, problem, value := l.form(), "", ""
		if field != "" {
			problem = "group_id or group_ids must be there, one of them, and split only with group_ids"
		} else if err != nil {
			one := r
			one.Lines, one.Choices = nil, nil
			l.ask(&one)
			var bad *holdover.InvalidError
			if _, err := one.Normalize(a.Limits); errors.As(err, &bad) && bad.Field != "ttl" {
				field, problem, value = bad.Field, bad.Problem, bad.Value
			}
		}
		if field != "" {
			each = append(each, FieldProblem{Field: fmt.Sprintf("body.lines[%d].%s", i, field), Problem: problem, Value: clip(value)})
		}
	}
	if err == nil && len(each) == 0 {
		return normalized, nil
	}
	if err == nil {
		err = &holdover.InvalidError{Field: "lines", Problem: "name their location in no way that is known"}
	}
	p := a.invalid("body.", err)
	if len(each) > 0 {
		p.Errors = each
	}
	return r, p
}

// form is the field that is wrong when a line does not say its location in one
// of the two ways.
func (l LineRequest) form() string {
	switch {
	case (l.GroupID == nil) == (l.GroupIDs == nil):
		return "group_id"
	case l.Split && l.GroupIDs == nil:
		return "split"
	}
	return ""
}

// ask adds the line to r.
func (l LineRequest) ask(r *holdover.Request) {
	if l.GroupID != nil {
		r.Lines = append(r.Lines, holdover.Line{Item: l.ItemID, Group: *l.GroupID, Quantity: l.Quantity})
		return
	}
	r.Choices = append(r.Choices, holdover.Choice{Item: l.ItemID, Groups: l.GroupIDs, Quantity: l.Quantity, Split: l.Split})
}

// invalid is the problem of an *InvalidError, its field named as the client sent it.
func (a *api) invalid(where string, err error) *Problem {
	return named(where, a.problemOf(err, holdover.Decision{}))
}

func named(where string, p *Problem) *Problem {
	for i := range p.Errors {
		switch f := &p.Errors[i]; f.Field {
		case "ttl":
			f.Field = where + "ttl_seconds"
		case "quantity", "group_ids": // of several lines together
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
		return nil, named("body.", a.problemOf(err, d)) // only lines are left to be wrong: no part of the hold
	}
	h := res.Hold
	out := &reservationOutput{Status: fresh, Body: Reservation{
		Token: h.Token.String(), ShopID: h.Shop, State: h.State.String(), Lines: h.Lines, Claimed: h.Claimed,
		ExpiresAt: instant(h.ExpiresAt), GrantedAt: instant(h.GrantedAt),
		Replayed: res.Replayed, Pending: res.Pending, Decision: *decisionOf(d),
	}}
	if out.Body.Lines == nil {
		out.Body.Lines = []holdover.Line{}
	}
	if h.Late != (holdover.Token{}) {
		out.Body.LateToken = h.Late.String()
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
