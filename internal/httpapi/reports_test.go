package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestReportPage: a report for people comes as what it is, may load and run
// nothing, and has its parameters checked.
func TestReportPage(t *testing.T) {
	s := serve(t, nil)
	s.operator.act = func(context.Context, string, string, string, bool) (any, error) { return map[string]int{"a": 1}, nil }
	get := func(query string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/pods/a/report"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	resp, body := get("?format=html&since=7d")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/html" || body != "<p>7d" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	if resp, body := get(""); resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" || body != `{"a":1}` {
		t.Errorf("%d %v %q", resp.StatusCode, resp.Header, body)
	}
	for _, query := range []string{"?format=pdf", "?since=" + strings.Repeat("9", 41)} {
		if resp, body := get(query); resp.StatusCode != 422 {
			t.Errorf("%s: %d %s", query, resp.StatusCode, body)
		}
	}
}

// TestSignIsChecked: a decision has a name, a word and a note, or does not arrive.
func TestSignIsChecked(t *testing.T) {
	s := serve(t, nil)
	s.operator.act = func(_ context.Context, what, _, _ string, _ bool) (any, error) {
		t.Errorf("%s arrived", what)
		return nil, nil
	}
	for _, body := range []string{
		`{"as":"me","decision":"maybe","note":"n","since":"7d"}`, `{"as":" ","decision":"go","note":"n","since":"7d"}`,
		`{"as":"me","decision":"go","note":"","since":"7d"}`, `{"as":"me","decision":"go","note":"n"}`, `{"as":"me","decision":"go","note":"n","since":"7d","at":"now"}`,
	} {
		if _, p := s.problem(t, "POST", "/v1/pods/a/report/sign", body, "Authorization", "Bearer "+secret); p.Status != 422 {
			t.Errorf("%s: %d %s", body, p.Status, p.Detail)
		}
	}
}
