package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/internal/httpapi"
)

func TestBadInputReachesNoReserver(t *testing.T) {
	line := func(l string) string { return `{"token":"` + token + `","lines":[` + l + `]}` }
	with := func(field string) string {
		return `{"token":"` + token + `","lines":[{"item_id":7,"group_id":1,"quantity":2}],` + field + `}`
	}
	const claim = reservations + "/" + token + "/claim"
	const extend = reservations + "/" + token + "/extend"
	many := strings.TrimPrefix(strings.Repeat(",1", 33), ",")
	for _, c := range []struct {
		name, path, body string
		status           int
		field            string // of one of the problems
	}{
		{"negative quantity", reservations, line(`{"item_id":7,"group_id":1,"quantity":-1}`), 422, "body.lines[0].quantity"},
		{"zero quantity", reservations, line(`{"item_id":7,"group_id":1,"quantity":0}`), 422, "body.lines[0].quantity"},
		{"second line", reservations, line(`{"item_id":7,"group_id":1,"quantity":1},{"item_id":0,"group_id":1,"quantity":1}`), 422, "body.lines[1].item_id"},
		{"negative group", reservations, line(`{"item_id":7,"group_id":-4,"quantity":1}`), 422, "body.lines[0].group_id"},
		{"quantity over the limit", reservations, line(`{"item_id":7,"group_id":1,"quantity":1},{"item_id":7,"group_id":1,"quantity":1000001}`), 422, "body.lines[1].quantity"},
		{"repeated lines over the limit", reservations, line(`{"item_id":7,"group_id":1,"quantity":1000000},{"item_id":7,"group_id":1,"quantity":1000000}`), 422, "body.lines"},
		{"huge quantity", reservations, line(`{"item_id":7,"group_id":1,"quantity":9223372036854775808}`), 422, "body.lines[0].quantity"},
		{"enormous quantity", reservations, line(`{"item_id":7,"group_id":1,"quantity":1` + strings.Repeat("0", 400) + `}`), 422, "body.lines[0].quantity"},
		{"exponent", reservations, line(`{"item_id":7,"group_id":1,"quantity":1e3}`), 422, "body.lines[0].quantity"},
		{"float", reservations, line(`{"item_id":7,"group_id":1,"quantity":1.5}`), 422, "body.lines[0].quantity"},
		{"whole float", reservations, line(`{"item_id":7.0,"group_id":1,"quantity":1}`), 422, "body.lines[0].item_id"},
		{"string for a number", reservations, line(`{"item_id":"7","group_id":1,"quantity":1}`), 422, "body.lines[0].item_id"},
		{"bool for a number", reservations, line(`{"item_id":true,"group_id":1,"quantity":1}`), 422, "body.lines[0].item_id"},
		{"null for a number", reservations, line(`{"item_id":null,"group_id":1,"quantity":1}`), 422, "body.lines[0].item_id"},
		{"null line", reservations, line(`null`), 422, "body.lines[0]"},
		{"list for a line", reservations, line(`[]`), 422, "body.lines[0]"},
		{"missing quantity", reservations, line(`{"item_id":7,"group_id":1}`), 422, "body.lines[0].quantity"},
		{"unknown field", reservations, with(`"colour":"red"`), 422, "body.colour"},
		{"unknown field of a line", reservations, line(`{"item_id":7,"group_id":1,"quantity":1,"price":0}`), 422, "body.lines[0].price"},
		{"upper case", reservations, with(`"Ttl_seconds":60`), 422, `body."Ttl_seconds"`},
		{"long s", reservations, with(`"ttl_ſeconds":60`), 422, `body."ttl_ſeconds"`},
		{"no lines", reservations, line(``), 422, "body.lines"},
		{"null lines", reservations, `{"token":"` + token + `","lines":null}`, 422, "body.lines"},
		{"missing lines", reservations, `{"token":"` + token + `"}`, 422, "body.lines"},
		{"missing token", reservations, `{"lines":[{"item_id":7,"group_id":1,"quantity":2}]}`, 422, "body.token"},
		{"bad token", reservations, strings.Replace(good, token, "123e4567", 1), 422, "body.token"},
		{"token in braces", reservations, strings.Replace(good, token, "{"+token+"}", 1), 422, "body.token"},
		{"token as urn", reservations, strings.Replace(good, token, "urn:uuid:"+token, 1), 422, "body.token"},
		{"zero token", reservations, strings.Replace(good, token, "00000000-0000-0000-0000-000000000000", 1), 422, "body.token"},
		{"token as number", reservations, strings.Replace(good, `"`+token+`"`, "5", 1), 422, "body.token"},
		{"zero ttl", reservations, with(`"ttl_seconds":0`), 422, "body.ttl_seconds"},
		{"negative ttl", reservations, with(`"ttl_seconds":-60`), 422, "body.ttl_seconds"},
		{"absurd ttl", reservations, with(`"ttl_seconds":86401`), 422, "body.ttl_seconds"},
		{"ttl that overflows", reservations, with(`"ttl_seconds":9223372036854775807`), 422, "body.ttl_seconds"},
		{"fractional ttl", reservations, with(`"ttl_seconds":0.5`), 422, "body.ttl_seconds"},
		{"shop zero", "/v1/shops/0/reservations", good, 422, "path.shop"},
		{"negative shop", "/v1/shops/-5/reservations", good, 422, "path.shop"},
		{"shop of letters", "/v1/shops/five/reservations", good, 422, "path.shop"},
		{"huge shop", "/v1/shops/99999999999999999999/reservations", good, 422, "path.shop"},
		{"bad token in the path", reservations + "/nonsense/claim", "", 422, "path.token"},
		{"zero token in the path", reservations + "/00000000-0000-0000-0000-000000000000/claim", "", 422, "path.token"},
		{"unknown shop", "/v1/shops/999/reservations", good, 404, ""},
		{"number as body", reservations, `5`, 422, "body"},
		{"null as body", reservations, `null`, 422, "body"},
		{"list as body", reservations, `[]`, 422, "body"},
		{"no body", reservations, ``, 400, ""},
		{"half a body", reservations, good[:40], 400, ""},
		{"not JSON", reservations, `token=5`, 400, ""},
		{"trailing garbage", reservations, good + `x`, 400, ""},
		{"two values", reservations, good + good, 400, ""},
		{"field twice", reservations, with(`"token":"` + token + `"`), 400, ""},
		{"field of a line twice", reservations, line(`{"item_id":7,"group_id":1,"quantity":1,"quantity":1}`), 400, ""},
		{"deep nesting", reservations, with(`"x":` + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000)), 400, ""},
		{"body too long", reservations, with(`"x":"` + strings.Repeat("x", 64<<10) + `"`), 413, ""},
		{"body of a claim too long", claim, strings.Repeat(" ", 64<<10+1), 413, ""},
		{"no location", reservations, line(`{"item_id":7,"quantity":1}`), 422, "body.lines[0].group_id"},
		{"two ways to say the location", reservations, line(`{"item_id":7,"group_id":1,"group_ids":[1,2],"quantity":1}`), 422, "body.lines[0].group_id"},
		{"no location in the second line", reservations, line(`{"item_id":7,"group_id":1,"quantity":1},{"item_id":8,"quantity":1}`), 422, "body.lines[1].group_id"},
		{"empty list of locations", reservations, line(`{"item_id":7,"group_ids":[],"quantity":1}`), 422, "body.lines[0].group_ids"},
		{"null for a list of locations", reservations, line(`{"item_id":7,"group_ids":null,"quantity":1}`), 422, "body.lines[0].group_id"},
		{"a location of letters", reservations, line(`{"item_id":7,"group_ids":[1,"b"],"quantity":1}`), 422, "body.lines[0].group_ids[1]"},
		{"a negative location", reservations, line(`{"item_id":7,"group_ids":[1,-2],"quantity":1}`), 422, "body.lines[0].group_ids"},
		{"a location twice", reservations, line(`{"item_id":7,"group_ids":[1,1],"quantity":1}`), 422, "body.lines[0].group_ids"},
		{"too many locations", reservations, line(`{"item_id":7,"group_ids":[` + many + `],"quantity":1}`), 422, "body.lines[0].group_ids"},
		{"split without a list", reservations, line(`{"item_id":7,"group_id":1,"split":true,"quantity":1}`), 422, "body.lines[0].split"},
		{"split as text", reservations, line(`{"item_id":7,"group_ids":[1,2],"split":"yes","quantity":1}`), 422, "body.lines[0].split"},
		{"one item in two ways", reservations, line(`{"item_id":7,"group_ids":[1,2],"quantity":1},{"item_id":7,"group_id":1,"quantity":1}`), 422, "body.lines"},
		{"claim of nothing", claim, `{"lines":[]}`, 422, "body.lines"},
		{"claim of null", claim, `{"lines":null}`, 422, "body.lines"},
		{"claim with an empty object", claim, `{}`, 422, "body.lines"},
		{"claim with null as body", claim, `null`, 422, "body"},
		{"claim of a negative quantity", claim, `{"lines":[{"item_id":7,"group_id":1,"quantity":-1}]}`, 422, "body.lines[0].quantity"},
		{"claim without a location", claim, `{"lines":[{"item_id":7,"quantity":1}]}`, 422, "body.lines[0].group_id"},
		{"claim with a list of locations", claim, `{"lines":[{"item_id":7,"group_ids":[1],"quantity":1}]}`, 422, "body.lines[0].group_ids"},
		{"claim with a number as body", claim, `5`, 422, "body"},
		{"extension without a body", extend, ``, 400, ""},
		{"extension without a time", extend, `{}`, 422, "body.ttl_seconds"},
		{"extension by nothing", extend, `{"ttl_seconds":0}`, 422, "body.ttl_seconds"},
		{"extension by too much", extend, `{"ttl_seconds":86401}`, 422, "body.ttl_seconds"},
		{"extension that overflows", extend, `{"ttl_seconds":9223372036854775807}`, 422, "body.ttl_seconds"},
		{"extension of a bad token", reservations + "/nonsense/extend", `{"ttl_seconds":60}`, 422, "path.token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, nil)
			_, p := s.problem(t, "POST", c.path, c.body)
			if p.Status != c.status {
				t.Errorf("got %d: %s", p.Status, p.Error())
			}
			found := c.field == ""
			for _, e := range p.Errors {
				found = found || e.Field == c.field && e.Problem != ""
				if len(e.Value) > 64 {
					t.Errorf("a value of %d bytes is sent back", len(e.Value))
				}
			}
			if !found {
				t.Errorf("no problem names %s: %+v", c.field, p)
			}
			if p.Decision != nil {
				t.Errorf("nobody decided anything: %+v", p.Decision)
			}
			if n := s.reserver.calls.Load(); n != 0 {
				t.Errorf("the reserver was asked %d times", n)
			}
		})
	}
}

func TestAllProblemsAreNamedAtOnce(t *testing.T) {
	s := serve(t, nil)
	_, p := s.problem(t, "POST", "/v1/shops/0/reservations", `{"token":"x","colour":1,"lines":[{"item_id":0,"group_id":"a"}]}`)
	if len(p.Errors) != 6 {
		t.Errorf("want 6 problems (shop, token, colour, item, group, quantity): %+v", p.Errors)
	}
}

func TestNumbersThatDoNotFitSaySo(t *testing.T) {
	s := serve(t, nil)
	for _, n := range []string{"9223372036854775808", "1e3", "1.0"} {
		_, p := s.problem(t, "POST", reservations, strings.Replace(good, `"quantity":2`, `"quantity":`+n, 1))
		if len(p.Errors) != 1 || !strings.Contains(p.Errors[0].Problem, "64 bits") || p.Errors[0].Value != n {
			t.Errorf("%s: %+v", n, p.Errors)
		}
	}
}

func TestBodyBounds(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.MaxBody = int64(len(good)) })
	if resp, b := s.call(t, "POST", reservations, good); resp.StatusCode != 201 {
		t.Errorf("a body of exactly the limit: %d %s", resp.StatusCode, b)
	}
	if _, p := s.problem(t, "POST", reservations, good+" "); p.Status != 413 {
		t.Errorf("one byte more: %+v", p)
	}
}

func TestContentType(t *testing.T) {
	s := serve(t, nil)
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "application/xml", "application/vnd.x+json", "application/json; charset=latin1", "json", ";"} {
		if _, p := s.problem(t, "POST", reservations, good, "Content-Type", ct); p.Status != 415 {
			t.Errorf("%s: %+v", ct, p)
		}
	}
	if n := s.reserver.calls.Load(); n != 0 {
		t.Errorf("the reserver was asked %d times", n)
	}
	for _, accept := range []string{"text/html", "application/xml;q=0.9", "*/*"} {
		if resp, b := s.call(t, "POST", reservations, good, "Accept", accept); resp.StatusCode != 201 || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("accept %s: %d %s", accept, resp.StatusCode, b)
		}
	}
}

func TestCrossOriginIsRefused(t *testing.T) {
	s := serve(t, nil)
	for _, h := range [][]string{{"Origin", "https://elsewhere.example"}, {"Sec-Fetch-Site", "cross-site"}} {
		for _, path := range []string{reservations, "/v1/pods/a/kill"} {
			resp, p := s.problem(t, "POST", path, good, h...)
			if p.Status != 403 || p.Type != "urn:holdover:cross-origin" || resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%v %s: %+v", h, path, p)
			}
		}
	}
	if n := s.reserver.calls.Load(); n != 0 {
		t.Errorf("the reserver was asked %d times", n)
	}
}

func TestRoutesThatAreNotThere(t *testing.T) {
	s := serve(t, nil)
	for _, path := range []string{"/", "/docs", "/v1", "/v1/shops/5", "/v1/shops/5/reservations/" + token + "/renew", "/schemas/Line.json"} {
		if _, p := s.problem(t, "GET", path, ""); p.Status != 404 || p.Type != "urn:holdover:no-such-route" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	resp, p := s.problem(t, "DELETE", reservations+"/"+token, "")
	if p.Status != 405 || !strings.Contains(resp.Header.Get("Allow"), "GET") {
		t.Errorf("%+v, Allow %q", p, resp.Header.Get("Allow"))
	}
}

// A client that stops in the middle of its body is answered and let go.
func TestSlowBody(t *testing.T) {
	s := serve(t, func(c *httpapi.Config) { c.BodyTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", reservations)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 408 || !resp.Close {
		t.Errorf("status %d, close %v", resp.StatusCode, resp.Close)
	}
	if n := s.reserver.calls.Load(); n != 0 {
		t.Errorf("the reserver was asked %d times", n)
	}
}

// A read deadline that outlives the body would cancel the context of a call
// that is longer than it.
func TestLongCallOutlivesTheBodyDeadline(t *testing.T) {
	const bodyTimeout = 50 * time.Millisecond
	s := serve(t, func(c *httpapi.Config) { c.BodyTimeout = bodyTimeout })
	s.reserver.do = func(ctx context.Context, _ string) (holdover.Result, error) {
		select {
		case <-ctx.Done():
			return holdover.Result{}, ctx.Err()
		case <-time.After(4 * bodyTimeout): // the passing of the deadline is the event
			return holdover.Result{}, nil
		}
	}
	if resp, b := s.call(t, "POST", reservations, good); resp.StatusCode != 201 {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
	if resp, b := s.call(t, "POST", reservations+"/"+token+"/claim", ""); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, b)
	}
}
