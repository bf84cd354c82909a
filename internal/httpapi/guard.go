package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// reply remembers what was sent, so that a panic is answered only when nothing was.
type reply struct {
	http.ResponseWriter
	started bool
	broken  bool // a write failed: the client is gone
}

func (r *reply) WriteHeader(code int) {
	if r.started && code >= 200 {
		return // huma reports a client that is gone with a second status
	}
	r.started = r.started || code >= 200
	r.ResponseWriter.WriteHeader(code)
}

func (r *reply) Write(b []byte) (int, error) {
	r.started = true
	n, err := r.ResponseWriter.Write(b)
	r.broken = r.broken || err != nil
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// shield is outermost: it sets the headers that every answer has, and turns a
// panic into a 500 (or a cut connection when an answer has begun).
func (a *api) shield(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &reply{ResponseWriter: w}
		out.Header().Set("X-Content-Type-Options", "nosniff")
		out.Header().Set("Cache-Control", "no-store")
		defer func() {
			v := recover()
			switch {
			case v == nil:
			case v == http.ErrAbortHandler, out.broken:
				panic(http.ErrAbortHandler)
			default:
				p := a.panicked(v, r.Method+" "+r.URL.Path)
				if out.started {
					panic(http.ErrAbortHandler)
				}
				a.write(out, p)
			}
		}()
		next.ServeHTTP(out, r)
	})
}

// panicked counts and logs a panic; call it from the deferred function that
// recovered, so that the stack is the panic's.
func (a *api) panicked(v any, where string) *Problem {
	a.OnPanic()
	p := nameless()
	a.Logger.Error("panic in a handler", "where", where, "panic", fmt.Sprint(v), "instance", p.Instance, "stack", string(debug.Stack()))
	return p
}

// contained runs do on a goroutine that shield does not see.
func (a *api) contained(do func() (PodStatus, error)) (s PodStatus, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = a.panicked(v, "pod status")
		}
	}()
	return do()
}

// readBody reads the whole body, within its size and time, before anything
// else looks at the request. The read deadline is then taken off: left on, it
// would cancel the request's context in the middle of a long call.
func (a *api) readBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A response writer without deadlines (a test recorder) has no connection to bound.
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(a.BodyTimeout))
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.MaxBody))
		_ = control.SetReadDeadline(time.Time{})
		var tooLarge *http.MaxBytesError
		switch {
		case errors.As(err, &tooLarge):
			a.write(w, &Problem{Type: typeOf("body-too-large"), Title: "Body too large", Status: http.StatusRequestEntityTooLarge,
				Detail: fmt.Sprintf("the body has more than %d bytes", a.MaxBody), Do: "split the cart, or raise the server's limit"})
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.Header().Set("Connection", "close")
			a.write(w, &Problem{Type: typeOf("body-too-slow"), Title: "Body too slow", Status: http.StatusRequestTimeout,
				Detail: fmt.Sprintf("the body did not arrive within %s", a.BodyTimeout), Do: "repeat the request with the same token"})
			return
		case err != nil:
			w.Header().Set("Connection", "close")
			a.write(w, &Problem{Type: typeOf("malformed"), Title: "Malformed request", Status: http.StatusBadRequest,
				Detail: "the body ended early or could not be read", Do: "repeat the request with the same token"})
			return
		case len(body) > 0 && !isJSON(r.Header.Get("Content-Type")):
			a.write(w, &Problem{Type: typeOf("content-type"), Title: "Unsupported content type", Status: http.StatusUnsupportedMediaType,
				Detail: fmt.Sprintf("the body is %q", clip(r.Header.Get("Content-Type"))), Do: "send Content-Type: application/json"})
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if len(body) > 0 {
			r.Header.Set("Content-Type", "application/json")
		}
		next.ServeHTTP(w, r)
	})
}

func isJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	charset := params["charset"]
	return err == nil && media == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8"))
}

// route is the mux with its own 404 and 405 as problems.
func (a *api) route(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fallback, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		seen := &verdict{header: http.Header{}, status: http.StatusNotFound}
		fallback.ServeHTTP(seen, r)
		p := &Problem{Type: typeOf("no-such-route"), Title: "No such route", Status: http.StatusNotFound,
			Detail: fmt.Sprintf("there is no %s", clip(r.URL.Path)), Do: "see /openapi.json for the routes"}
		if seen.status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", seen.header.Get("Allow"))
			p.Type, p.Title, p.Status = typeOf("method-not-allowed"), "Method not allowed", http.StatusMethodNotAllowed
			p.Detail, p.Do = fmt.Sprintf("%s is not for %s", r.Method, clip(r.URL.Path)), "use "+seen.header.Get("Allow")
		}
		a.write(w, p)
	})
}

// verdict takes what the mux says about a request that it has no route for.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdict) WriteHeader(code int)        { v.status = code }
