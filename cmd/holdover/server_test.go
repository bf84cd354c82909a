package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// server is a running `holdover serve`.
type server struct {
	t      *testing.T
	url    string
	stderr *lockedBuffer
	stop   context.CancelFunc
	ended  chan int
}

var listening = regexp.MustCompile(`http://[0-9.:]+`)

// serve starts an instance and waits until it listens. It ends with the test,
// or with close.
func (s *site) serve(instance string) *server {
	s.t.Helper()
	return s.serveFile(s.configure(instance))
}

func (s *site) serveFile(config string) *server {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	srv := &server{t: s.t, stderr: &lockedBuffer{}, stop: cancel, ended: make(chan int, 1)}
	go func() {
		srv.ended <- run(ctx, []string{"serve", "--config", config}, strings.NewReader(""), srv.stderr, srv.stderr)
	}()
	s.t.Cleanup(func() { srv.close(0) })
	eventually(s.t, "the instance listens", func() bool {
		srv.url = listening.FindString(srv.stderr.String())
		return srv.url != "" || len(srv.ended) > 0
	})
	if srv.url == "" {
		s.t.Fatalf("serve ended:\n%s", srv.stderr)
	}
	return srv
}

// close ends the instance as SIGTERM does and checks its exit code.
func (srv *server) close(code int) {
	srv.t.Helper()
	srv.stop()
	if srv.ended == nil {
		return
	}
	select {
	case got := <-srv.ended:
		if got != code {
			srv.t.Errorf("serve: exit %d, want %d:\n%s", got, code, srv.stderr)
		}
	case <-time.After(time.Minute):
		srv.t.Errorf("serve does not end:\n%s", srv.stderr)
	}
	srv.ended = nil
}

func (srv *server) ready() *server {
	srv.t.Helper()
	eventually(srv.t, "the instance is ready", func() bool { return srv.get("/readyz").status == http.StatusOK })
	return srv
}

// reply is an HTTP answer.
type reply struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

func (r reply) has(t *testing.T, status int, texts ...string) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d, want %d: %s", r.status, status, r.text)
	}
	for _, text := range texts {
		if !strings.Contains(r.text, text) {
			t.Errorf("the answer says nothing of %q: %s", text, r.text)
		}
	}
	return r
}

func (srv *server) get(path string) reply              { return srv.do("GET", path, "", "") }
func (srv *server) post(path, body string) reply       { return srv.do("POST", path, body, "") }
func (srv *server) operate(m, path, body string) reply { return srv.do(m, path, body, operatorToken) }

func (srv *server) do(method, path, body, token string) reply {
	srv.t.Helper()
	req, err := http.NewRequest(method, srv.url+path, strings.NewReader(body))
	if err != nil {
		srv.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Do(req)
	if err != nil {
		srv.t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		srv.t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header, text: text.String()}
	_ = json.Unmarshal(text.Bytes(), &r.body) // metrics are no JSON
	return r
}
