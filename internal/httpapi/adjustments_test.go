package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"holdover"
	"holdover/internal/httpapi"
)

func TestAdjustments(t *testing.T) {
	s := serve(t, nil)
	var got []string
	s.operator.act = func(ctx context.Context, what, by, reason string, dry bool) (any, error) {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the call has no deadline")
		}
		got = append(got, fmt.Sprint(what, " ", by, " ", reason, " ", dry))
		return map[string]any{"changed": 3}, nil
	}
	const path = "/v1/shops/5/adjustments"
	body := func(change string) string {
		return `{"token":"` + token + `","item_id":7,"group_id":2,"by":"ada","reason":"count",` + change + `}`
	}
	for change, want := range map[string]string{
		`"delta":30000`:            "adjust " + token + " 5:7:2:add:30000:false ada count false",
		`"delta":-4,"clamp":true`:  "adjust " + token + " 5:7:2:add:-4:true ada count false",
		`"set":0,"dry_run":true`:   "adjust " + token + " 5:7:2:set:0:false ada count true",
		`"set":12,"dry_run":false`: "adjust " + token + " 5:7:2:set:12:false ada count false",
	} {
		got = nil
		resp, b := s.call(t, "POST", path, body(change), "Authorization", "Bearer "+secret)
		if resp.StatusCode != 200 || strings.TrimSpace(b) != `{"changed":3}` || len(got) != 1 || got[0] != want {
			t.Errorf("%s: %d %s, asked %q", change, resp.StatusCode, b, got)
		}
	}
	got = nil
	for change, field := range map[string]string{
		`"delta":0`: "body.delta", `"set":-1`: "body.set", `"delta":1,"set":1`: "body.delta",
		`"clamp":true`: "body.delta", `"delta":9007199254740993`: "body.delta", `"delta":1,"units":2`: "body.units",
		`"delta":1.5`: "body.delta", `"delta":1,"by":"  "`: "", // a field twice
	} {
		_, p := s.problem(t, "POST", path, body(change), "Authorization", "Bearer "+secret)
		if field == "" && p.Status != 400 || field != "" && (p.Status != 422 || len(p.Errors) != 1 || p.Errors[0].Field != field) {
			t.Errorf("%s: %+v", change, p)
		}
	}
	for _, text := range []string{`"by":" ","reason":"x"`, `"by":"x","reason":" "`, `"by":"x"`, `"by":"x","reason":"` + strings.Repeat("y", 501) + `"`} {
		_, p := s.problem(t, "POST", path, `{"token":"`+token+`","item_id":7,"group_id":2,"delta":1,`+text+`}`, "Authorization", "Bearer "+secret)
		if p.Status != 422 {
			t.Errorf("%s: %+v", text, p)
		}
	}
	if _, p := s.problem(t, "POST", "/v1/shops/900/adjustments", body(`"delta":1`), "Authorization", "Bearer "+secret); p.Status != 404 || p.Type != "urn:holdover:unknown-shop" {
		t.Errorf("%+v", p)
	}
	if _, p := s.problem(t, "POST", "/v1/shops/150/adjustments", body(`"delta":1`), "Authorization", "Bearer "+secret); p.Status != 503 || !strings.Contains(p.Detail, "no operator") {
		t.Errorf("%+v", p)
	}
	if len(got) != 0 {
		t.Errorf("asked for %q", got)
	}

	one := int64(1)
	c := &httpapi.Client{BaseURL: s.URL, Token: secret, HTTP: s.Client()}
	request := httpapi.AdjustmentRequest{Token: token, ItemID: 7, GroupID: 2, Delta: &one, By: "ada", Reason: "count"}
	if raw, err := c.Adjust(t.Context(), 5, request); err != nil || !json.Valid(raw) || len(got) != 1 {
		t.Errorf("client: %s, %v", raw, err)
	}
	tok, _ := holdover.ParseToken(token)
	s.operator.act = func(context.Context, string, string, string, bool) (any, error) {
		return nil, &holdover.AdjustRefusedError{Token: tok, Shop: 5, Item: 7, Group: 2, Wanted: 9, Available: 8, Free: 3}
	}
	if _, p := s.problem(t, "POST", path, body(`"delta":-9`), "Authorization", "Bearer "+secret); p.Status != 409 || p.Type != "urn:holdover:adjustment-refused" ||
		!strings.Contains(p.Detail, "8 and 3 of them are free") || !strings.Contains(p.Do, "new token") {
		t.Errorf("%+v", p)
	}
}
