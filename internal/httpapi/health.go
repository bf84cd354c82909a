package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// Health is the answer of /healthz and of a ready /readyz.
type Health struct {
	Status  string `json:"status" enum:"ok,ready"`
	Version string `json:"version"`
}

type healthOutput struct{ Body Health }

func (a *api) registerHealth(routes huma.API) {
	health := func(op huma.Operation, failed ...int) huma.Operation {
		op.Method, op.Tags = http.MethodGet, []string{"health"}
		document(routes, &op, reflect.TypeFor[Health](), []int{200}, failed...)
		return op
	}
	huma.Register(routes, health(huma.Operation{OperationID: "healthz", Path: "/healthz", Summary: "The process runs"}, 500),
		func(context.Context, *struct{}) (*healthOutput, error) {
			return &healthOutput{Health{Status: "ok", Version: a.Version}}, nil
		})
	huma.Register(routes, health(huma.Operation{OperationID: "readyz", Path: "/readyz", Summary: "The instance should get traffic"}, 503),
		func(context.Context, *struct{}) (*healthOutput, error) {
			if ok, reasons := a.Ready(); !ok {
				return nil, &Problem{Type: typeOf("instance-not-ready"), Title: "Instance not ready", Status: http.StatusServiceUnavailable,
					Detail: "this instance should get no traffic now", Reasons: reasons, retryAfter: a.RetryAfter}
			}
			return &healthOutput{Health{Status: "ready", Version: a.Version}}, nil
		})
}
