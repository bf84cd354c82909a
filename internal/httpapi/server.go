package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// serveOpenAPI builds the document once, when all routes are known.
func (a *api) serveOpenAPI(mux *http.ServeMux, doc *huma.OpenAPI) error {
	text := func(id, path, summary, contentType string) {
		doc.AddOperation(&huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Tags: []string{"health"},
			Responses: map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{contentType: {}}}}})
	}
	text("openapi", "/openapi.json", "This document", "application/openapi+json")
	if a.Metrics != nil {
		text("metrics", "/metrics", "Prometheus metrics", "text/plain")
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("http api: the OpenAPI document: %w", err)
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(body) // a client that is gone needs no answer
	})
	return nil
}

// Server returns an http.Server for the handler, bounded on every side. The
// caller listens, serves and shuts it down.
func Server(addr string, handler http.Handler) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // New's handler bounds the body itself, and more tightly
		WriteTimeout:      90 * time.Second, // longer than the longest operator call
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}
