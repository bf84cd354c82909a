package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"holdover"
)

// Problem is every error of this API (RFC 9457, application/problem+json), and
// the error that a Client returns for it.
type Problem struct {
	Type     string              `json:"type" format:"uri" example:"urn:holdover:out-of-stock" doc:"Stable name of the kind of problem: branch on this."`
	Title    string              `json:"title" doc:"The kind of problem in a few words."`
	Status   int                 `json:"status" doc:"The HTTP status."`
	Detail   string              `json:"detail,omitempty" doc:"What happened this time."`
	Do       string              `json:"do,omitempty" doc:"What to do next."`
	Instance string              `json:"instance,omitempty" format:"uri" doc:"Names this occurrence; the server's log has it too."`
	Errors   []FieldProblem      `json:"errors,omitempty" doc:"With bad input: each problem with its field."`
	Short    []holdover.Shortage `json:"short,omitempty" doc:"With out-of-stock and late-claim: the lines that are short, and what is left at most. A group_id of 0 stands for all of a line's group_ids."`
	State    string              `json:"state,omitempty" enum:"released,expired" doc:"With hold-ended and late-claim: how it ended."`
	Reasons  []string            `json:"reasons,omitempty" doc:"With not-ready of the instance: why."`
	Decision *Decision           `json:"decision,omitempty" doc:"Who decided, under which agreement, and why. Absent when nobody was asked."`

	retryAfter   time.Duration
	authenticate string
}

// FieldProblem is what is wrong with one field of a request.
type FieldProblem struct {
	Field   string `json:"field" example:"body.lines[0].quantity"`
	Problem string `json:"problem"`
	Value   string `json:"value,omitempty" doc:"The value, shortened."`
}

// Decision is holdover.Decision with names as text: an answer of nobody has the
// stage "unknown", which the root's type can't read back.
type Decision struct {
	Pod    string         `json:"pod"`
	Stage  string         `json:"stage" enum:"unknown,redis,shadow,joint,mysql,mysql-only"`
	Epoch  holdover.Epoch `json:"epoch"`
	Store  string         `json:"store" enum:"none,redis,mysql"`
	Reason string         `json:"reason"`
}

func decisionOf(d holdover.Decision) *Decision {
	if d == (holdover.Decision{}) {
		return nil
	}
	return &Decision{Pod: d.Pod, Stage: d.Stage.String(), Epoch: d.Epoch, Store: d.Store.String(), Reason: d.Reason}
}

func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Title)
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s %s", e.Field, e.Problem)
	}
	for _, r := range p.Reasons {
		b.WriteString("; " + r)
	}
	if p.Do != "" {
		b.WriteString(" (" + p.Do + ")")
	}
	return b.String()
}

// GetStatus, GetHeaders and ContentType are how huma asks an error what to send.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns Retry-After and WWW-Authenticate where they apply.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.retryAfter.Seconds()))))
	}
	if p.authenticate != "" {
		h.Set("WWW-Authenticate", p.authenticate)
	}
	return h
}

// ContentType is application/problem+json, whatever was negotiated.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

func typeOf(slug string) string { return "urn:holdover:" + slug }

// RefusedError is an operator's command that the pod refuses as it is now: a
// kill in mysql-only, a restore of what is not latched.
type RefusedError struct {
	Detail string // what was refused and why
	Do     string // what to do instead
}

func (e *RefusedError) Error() string {
	if e.Do == "" {
		return e.Detail
	}
	return e.Detail + " (" + e.Do + ")"
}

// outside is the table of sentinels. The first match counts: an error that may
// have been written is never shown as one that was not.
var outside = []struct {
	err             error
	status          int
	slug, title, do string
}{
	{holdover.ErrUnknownOutcome, 503, "outcome-unknown", "Outcome unknown", "repeat the request with the same token: it will not be done twice"},
	{holdover.ErrInvalid, 422, "invalid", "Invalid request", "correct the fields named in errors"},
	{holdover.ErrOutOfStock, 409, "out-of-stock", "Out of stock", "ask for no more than what is left; the same token may be used again"},
	{holdover.ErrAdjustRefused, 409, "adjustment-refused", "Adjustment refused", "take away no more than is free, set clamp, or wait until holds end; choose a new token: a refusal stays"},
	{holdover.ErrTokenReused, 409, "token-reused", "Token reused", "choose a new token for a new reservation"},
	{holdover.ErrAlreadyClaimed, 409, "already-claimed", "Already claimed", "choose a new token for a new reservation; a claim can't be undone here"},
	{holdover.ErrClaimPending, 409, "claim-pending", "Claim pending", "look the hold up: the claim will be applied"},
	{holdover.ErrEnded, 410, "hold-ended", "Hold ended", "choose a new token and reserve again"},
	{holdover.ErrUnknownHold, 404, "unknown-hold", "Unknown hold", "check the token and the shop"},
	{holdover.ErrNotLoaded, 503, "stock-not-loaded", "Stock not loaded", "load the item's stock, or wait until the rebuild of the store has reached it"},
	{holdover.ErrOverloaded, 503, "overloaded", "Overloaded", "wait, then repeat the request with the same token"},
	{holdover.ErrTryAgain, 503, "try-again", "Try again", "wait, then repeat the request with the same token"},
	{holdover.ErrNotReady, 503, "not-ready", "Pod not ready", "wait, then repeat the request with the same token; the pod's status says what it waits for"},
	{holdover.ErrStale, 503, "stale-epoch", "Stage is changing", "repeat the request with the same token"},
	{holdover.ErrNoFence, 503, "no-fence", "No fence", "an operator must look at the pod's status: a store was never initialized or lost its data"},
	{holdover.ErrUnavailable, 503, "unavailable", "Store unavailable", "wait, then repeat the request with the same token: nothing was promised"},
}

// problemOf is the one place where an error becomes an HTTP answer. A *Problem
// passes; what has no name becomes a 500 whose cause stays in the log.
func (a *api) problemOf(err error, d holdover.Decision) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	p = &Problem{Detail: err.Error()}
	p.Decision = decisionOf(d)
	var refused *RefusedError
	if errors.As(err, &refused) {
		p.Type, p.Title, p.Status, p.Detail, p.Do = typeOf("refused"), "Refused", http.StatusConflict, refused.Detail, refused.Do
		return p
	}
	var late *holdover.LateClaimError
	if errors.As(err, &late) {
		// The hold is gone, as with hold-ended; asking for less is no way out, as it
		// is with out-of-stock.
		p.Type, p.Title, p.Status, p.State, p.Short = typeOf("late-claim"), "Claimed too late", http.StatusGone, holdover.StateExpired.String(), late.Short
		p.Do = "give the payment back, or claim the part that is left; a repeat tries again"
		return p
	}
	for _, o := range outside {
		if !errors.Is(err, o.err) {
			continue
		}
		p.Type, p.Title, p.Status, p.Do = typeOf(o.slug), o.title, o.status, o.do
		if o.status == http.StatusServiceUnavailable {
			p.retryAfter = a.RetryAfter
		}
		var short *holdover.OutOfStockError
		if errors.As(err, &short) {
			p.Short = short.Short
		}
		var ended *holdover.EndedError
		if errors.As(err, &ended) {
			p.State = ended.State.String()
		}
		var bad *holdover.InvalidError
		if errors.As(err, &bad) {
			p.Errors = []FieldProblem{{Field: bad.Field, Problem: bad.Problem, Value: clip(bad.Value)}}
		}
		return p
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		// A bare context error says nothing about what was written.
		return a.problemOf(fmt.Errorf("%w: %w", holdover.ErrUnknownOutcome, err), d)
	}
	return a.internal(err, d)
}

// internal hides an error without a name behind an instance that the log has too.
func (a *api) internal(err error, d holdover.Decision) *Problem {
	p := nameless()
	p.Decision = decisionOf(d)
	a.Logger.Error("request failed", "err", err, "instance", p.Instance, "pod", d.Pod)
	return p
}

// nameless is a 500 with an instance of its own.
func nameless() *Problem {
	return &Problem{Type: typeOf("internal"), Title: "Internal error", Status: http.StatusInternalServerError,
		Detail:   "the request failed in a way that has no name here, and may have been carried out",
		Do:       "look the token up, or repeat the request with the same token; report the instance",
		Instance: "urn:uuid:" + holdover.NewToken().String()}
}

// fromHuma turns what huma found (bad parameters, bodies and types) into a Problem.
func fromHuma(m *huma.ErrorModel) *Problem {
	p := &Problem{Status: m.Status, Title: m.Title, Detail: m.Detail, Type: typeOf("internal")}
	for _, e := range m.Errors {
		p.Errors = append(p.Errors, fieldProblem(e))
	}
	switch m.Status {
	case http.StatusUnprocessableEntity:
		p.Type, p.Title, p.Detail = typeOf("invalid"), "Invalid request", "the request was refused before anything was asked of a store"
		p.Do = "correct the fields named in errors"
	case http.StatusBadRequest:
		p.Type, p.Title, p.Do = typeOf("malformed"), "Malformed request", "send one JSON object as the OpenAPI document describes it"
		if len(p.Errors) > 0 {
			p.Detail, p.Errors = "the body is not valid JSON: "+p.Errors[0].Problem, nil
		}
	}
	return p
}

const requiredPrefix = "expected required property "

func fieldProblem(e *huma.ErrorDetail) FieldProblem {
	f := FieldProblem{Field: e.Location, Problem: e.Message}
	// huma reports a missing property at its parent: name the property itself.
	if rest, ok := strings.CutPrefix(e.Message, requiredPrefix); ok {
		name, _, _ := strings.Cut(rest, " ")
		f.Field, f.Problem = strings.TrimPrefix(e.Location+"."+name, "."), "is missing"
		return f
	}
	switch v := e.Value.(type) {
	case json.Number: // only numbers that are not whole, or too large: see parseValue
		f.Problem, f.Value = "must be a whole number that fits into 64 bits, written without fraction or exponent", clip(v.String())
	case string:
		f.Value = clip(v)
	case bool, int64, float64:
		f.Value = clip(fmt.Sprint(v))
	}
	return f
}

// write sends a problem outside of huma. A failing write has nobody to tell.
func (a *api) write(w http.ResponseWriter, p *Problem) {
	for k, v := range p.GetHeaders() {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:61], "") + "..."
	}
	return s
}
