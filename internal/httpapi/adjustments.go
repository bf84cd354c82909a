package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"holdover"
)

// AdjustmentRequest is the body of an adjustment: delta or set, not both.
type AdjustmentRequest struct {
	Token   string `json:"token" format:"uuid" doc:"Chosen by the caller, a random UUID for each adjustment: a repeated request with it changes nothing and gets the same answer."`
	ItemID  int64  `json:"item_id" minimum:"1"`
	GroupID int64  `json:"group_id" minimum:"1" doc:"The location."`
	Delta   *int64 `json:"delta,omitempty" doc:"Units to add or, below zero, to take away."`
	Set     *int64 `json:"set,omitempty" minimum:"0" doc:"How many units the ledger shall have, live holds included."`
	Clamp   bool   `json:"clamp,omitempty" doc:"Take away as many as nobody holds, where it would be refused without this."`
	By      string `json:"by" minLength:"1" maxLength:"100" doc:"Who asks; kept with the change."`
	Reason  string `json:"reason" minLength:"1" maxLength:"500" doc:"Why; kept with the change."`
	DryRun  bool   `json:"dry_run,omitempty" doc:"Only say what it would do."`
}

type adjustInput struct {
	Shop int64 `path:"shop" minimum:"1"`
	Body AdjustmentRequest
}

func (a *api) registerAdjustments(routes huma.API) {
	op := huma.Operation{OperationID: "adjust", Method: http.MethodPost, Path: "/v1/shops/{shop}/adjustments",
		Summary: "Change the stock of an item at one location", Tags: []string{"operator"},
		Security: []map[string][]string{{"operator": {}}}, Middlewares: huma.Middlewares{a.authorize}}
	document(routes, &op, reflect.TypeFor[any](), []int{200}, 401, 403, 404, 409, 422, 500, 503)
	huma.Register(routes, op, a.adjust)
}

func (a *api) adjust(ctx context.Context, in *adjustInput) (*anyOutput, error) {
	pod, err := a.podOf(in.Shop)
	if err != nil {
		return nil, err
	}
	b := in.Body
	change := holdover.Adjustment{Shop: in.Shop, Item: b.ItemID, Group: b.GroupID, Set: b.Set, Clamp: b.Clamp, Reason: b.Reason, By: b.By}
	if b.Delta != nil {
		change.Delta = *b.Delta
	}
	if change.Token, err = holdover.ParseToken(b.Token); err == nil {
		err = change.Validate()
	}
	if err != nil {
		return nil, a.invalid("body.", err)
	}
	if pod.Operator == nil {
		return nil, a.problemOf(fmt.Errorf("pod %s has no operator on this instance: %w", pod.Name, holdover.ErrNotReady), holdover.Decision{Pod: pod.Name})
	}
	// A lost connection must not stop it between the two stores.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.OperatorTimeout)
	defer cancel()
	v, err := pod.Operator.Adjust(ctx, change, b.DryRun)
	if err != nil {
		return nil, a.problemOf(err, holdover.Decision{Pod: pod.Name})
	}
	return &anyOutput{v}, nil
}

// Adjust changes the stock of an item at one location of a shop.
func (c *Client) Adjust(ctx context.Context, shop int64, r AdjustmentRequest) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodPost, fmt.Sprintf("/v1/shops/%d/adjustments", shop), r)
}
