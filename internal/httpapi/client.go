package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls the operator routes of a running server. Its errors are
// *Problem where the server answered with one.
type Client struct {
	BaseURL string        // like http://127.0.0.1:8080
	Token   string        // the operator's bearer token
	Timeout time.Duration // of one call; 75 s, longer than the server's own bound
	HTTP    *http.Client  // nil: http.DefaultClient
}

// maxAnswer bounds what a client reads of one answer.
const maxAnswer = 16 << 20

// Pods returns the status of every pod.
func (c *Client) Pods(ctx context.Context) ([]PodStatus, error) {
	var list PodList
	err := c.call(ctx, http.MethodGet, "/v1/pods", nil, &list)
	return list.Pods, err
}

// Pod returns the status of one pod.
func (c *Client) Pod(ctx context.Context, pod string) (PodStatus, error) {
	var s PodStatus
	err := c.call(ctx, http.MethodGet, podPath(pod, ""), nil, &s)
	return s, err
}

// Kill flips a pod back to Redis, latched, and returns the server's account of it.
func (c *Client) Kill(ctx context.Context, pod, by, reason string, dryRun bool) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodPost, podPath(pod, "/kill"), KillRequest{By: by, Reason: reason, DryRun: dryRun})
}

// Restore takes a pod's latch off.
func (c *Client) Restore(ctx context.Context, pod, by, reason string, dryRun bool) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodPost, podPath(pod, "/restore"), KillRequest{By: by, Reason: reason, DryRun: dryRun})
}

// Report returns a pod's divergence report since then, as GET .../report
// describes it; the last 7 days when since is empty.
func (c *Client) Report(ctx context.Context, pod, since string) (json.RawMessage, error) {
	path := podPath(pod, "/report")
	if since != "" {
		path += "?since=" + url.QueryEscape(since)
	}
	return c.raw(ctx, http.MethodGet, path, nil)
}

// Sign records a decision about a pod's report.
func (c *Client) Sign(ctx context.Context, pod string, r SignRequest) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodPost, podPath(pod, "/report/sign"), r)
}

// Verify compares the state of a pod's stores now.
func (c *Client) Verify(ctx context.Context, pod string) (json.RawMessage, error) {
	return c.raw(ctx, http.MethodPost, podPath(pod, "/verify"), nil)
}

// Repair compares the state of a pod's stores and brings the one that follows to
// where the deciding one is. A large pod takes longer than one call may: use the
// command line there.
func (c *Client) Repair(ctx context.Context, pod string, r VerifyRequest) (json.RawMessage, error) {
	r.Repair = true
	return c.raw(ctx, http.MethodPost, podPath(pod, "/verify"), r)
}

func podPath(pod, rest string) string { return "/v1/pods/" + url.PathEscape(pod) + rest }

func (c *Client) raw(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var out json.RawMessage
	err := c.call(ctx, method, path, body, &out)
	return out, err
}

func (c *Client) call(ctx context.Context, method, path string, body, out any) error {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 75 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.BaseURL, "/")+path, payload)
	if err != nil {
		return fmt.Errorf("the server's address %q: %w", c.BaseURL, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("no answer within %s; what was asked may have happened, look at the status: %w", timeout, err)
		}
		return fmt.Errorf("is the server running, and is this its address? %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("the answer of %s %s broke off; what was asked may have happened, look at the status: %w", method, path, err)
	case len(answer) > maxAnswer:
		return fmt.Errorf("the answer of %s %s has more than %d bytes", method, path, maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return asProblem(resp, answer)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the answer of %s %s can't be read; are client and server of one version? %w", method, path, err)
	}
	return nil
}

// asProblem reads a problem, or makes one of an answer that is none (a proxy's).
func asProblem(resp *http.Response, answer []byte) *Problem {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	var p Problem
	if media == "application/problem+json" && json.Unmarshal(answer, &p) == nil && p.Title != "" {
		return &p
	}
	return &Problem{Type: "about:blank", Title: resp.Status, Status: resp.StatusCode, Detail: clip(strings.TrimSpace(string(answer))),
		Do: "check that the address is that of a holdover server"}
}
