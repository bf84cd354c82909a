package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"holdover"
)

// Operator is what an operator can ask of a pod. A refusal is a *RefusedError;
// other errors are the root's. The any values are encoded as JSON as they are.
type Operator interface {
	// Status says where the pod is and what happens next. It reads; a store
	// that does not answer is named in the status, not an error.
	Status(ctx context.Context) (PodStatus, error)
	// Kill flips the pod back to Redis and latches it; dryRun says what it would do.
	Kill(ctx context.Context, by, reason string, dryRun bool) (any, error)
	// Restore takes the latch off; dryRun says what it would do.
	Restore(ctx context.Context, by, reason string, dryRun bool) (any, error)
	// Report is the divergence report of the pod, over all its instances.
	Report(ctx context.Context, r ReportRequest) (ReportPage, error)
	// Sign records somebody's decision about a report.
	Sign(ctx context.Context, r SignRequest) (any, error)
	// Verify compares the state of both stores now, and with r.Repair brings the
	// one that follows to where the deciding one is.
	Verify(ctx context.Context, r VerifyRequest) (any, error)
	// Adjust changes the stock of an item at one location; dryRun says what it
	// would do. The change is valid.
	Adjust(ctx context.Context, a holdover.Adjustment, dryRun bool) (any, error)
}

// KillRequest is the body of kill and restore.
type KillRequest struct {
	By     string `json:"by" minLength:"1" maxLength:"100" pattern:"\\S" patternDescription:"a name" doc:"Who asks; goes into the audit."`
	Reason string `json:"reason" minLength:"1" maxLength:"500" pattern:"\\S" patternDescription:"a reason" doc:"Why; goes into the audit and the fence."`
	DryRun bool   `json:"dry_run,omitempty" doc:"Only say what it would do."`
}

// VerifyRequest is the body of verify; none is a verification alone.
type VerifyRequest struct {
	Repair   bool   `json:"repair,omitempty" doc:"Repair by token what stands still and differs; a Redis that lost its data while MySQL decides is rebuilt first."`
	DryRun   bool   `json:"dry_run,omitempty" doc:"Only say what a repair would do."`
	Counters bool   `json:"counters,omitempty" doc:"Set counters also where Redis decides: somebody else may have sold those units."`
	By       string `json:"by,omitempty" maxLength:"100" doc:"Who asks; needed with repair."`
	Reason   string `json:"reason,omitempty" maxLength:"500" doc:"Why; needed with repair, goes into the audit."`
}

type verifyInput struct {
	Pod  string `path:"pod" maxLength:"100"`
	Body *VerifyRequest
}

type podInput struct {
	Pod string `path:"pod" maxLength:"100"`
}

type killInput struct {
	Pod  string `path:"pod" maxLength:"100"`
	Body KillRequest
}

// PodList is the answer of GET /v1/pods.
type PodList struct {
	Pods []PodStatus `json:"pods" nullable:"false"`
}

type podsOutput struct{ Body PodList }
type podOutput struct{ Body PodStatus }
type anyOutput struct{ Body any }

func (a *api) registerOperator(routes huma.API) {
	operator := func(op huma.Operation, body reflect.Type) huma.Operation {
		op.Tags = []string{"operator"}
		op.Security = []map[string][]string{{"operator": {}}}
		op.Middlewares = huma.Middlewares{a.authorize}
		document(routes, &op, body, []int{200}, 401, 403, 404, 409, 422, 500, 503)
		return op
	}
	huma.Register(routes, operator(huma.Operation{OperationID: "pods", Method: http.MethodGet, Path: "/v1/pods",
		Summary: "The status of every pod"}, reflect.TypeFor[PodList]()),
		func(ctx context.Context, _ *struct{}) (*podsOutput, error) {
			return &podsOutput{PodList{a.statuses(ctx)}}, nil
		})
	huma.Register(routes, operator(huma.Operation{OperationID: "pod", Method: http.MethodGet, Path: "/v1/pods/{pod}",
		Summary: "The status of one pod"}, reflect.TypeFor[PodStatus]()),
		func(ctx context.Context, in *podInput) (*podOutput, error) {
			s, err := onPod(ctx, a, in.Pod, Operator.Status)
			if err != nil {
				return nil, err
			}
			return &podOutput{s.filled(in.Pod)}, nil
		})

	result := reflect.TypeFor[any]()
	command := func(do func(Operator, context.Context, string, string, bool) (any, error)) func(context.Context, *killInput) (*anyOutput, error) {
		return func(ctx context.Context, in *killInput) (*anyOutput, error) {
			// An operator's lost connection must not stop a flip between its two writes.
			ctx = context.WithoutCancel(ctx)
			v, err := onPod(ctx, a, in.Pod, func(o Operator, ctx context.Context) (any, error) {
				return do(o, ctx, in.Body.By, in.Body.Reason, in.Body.DryRun)
			})
			return &anyOutput{v}, err
		}
	}
	huma.Register(routes, operator(huma.Operation{OperationID: "kill", Method: http.MethodPost, Path: "/v1/pods/{pod}/kill",
		Summary: "Flip the pod back to Redis, latched"}, result), command(Operator.Kill))
	huma.Register(routes, operator(huma.Operation{OperationID: "restore", Method: http.MethodPost, Path: "/v1/pods/{pod}/restore",
		Summary: "Take the latch off"}, result), command(Operator.Restore))

	a.registerReports(routes, operator)
	huma.Register(routes, operator(huma.Operation{OperationID: "verify", Method: http.MethodPost, Path: "/v1/pods/{pod}/verify",
		Summary: "Compare the state of both stores now, or repair it"}, result),
		func(ctx context.Context, in *verifyInput) (*anyOutput, error) {
			var r VerifyRequest
			if in.Body != nil {
				r = *in.Body
			}
			v, err := onPod(ctx, a, in.Pod, func(o Operator, ctx context.Context) (any, error) { return o.Verify(ctx, r) })
			return &anyOutput{v}, err
		})
}

// onPod runs one operator call under its deadline.
func onPod[T any](ctx context.Context, a *api, name string, do func(Operator, context.Context) (T, error)) (T, error) {
	var zero T
	pod, err := a.podNamed(name)
	if err != nil {
		return zero, err
	}
	if pod.Operator == nil {
		return zero, a.problemOf(fmt.Errorf("pod %s has no operator on this instance: %w", pod.Name, holdover.ErrNotReady), holdover.Decision{Pod: pod.Name})
	}
	ctx, cancel := context.WithTimeout(ctx, a.OperatorTimeout)
	defer cancel()
	v, err := do(pod.Operator, ctx)
	if err != nil {
		p := a.problemOf(err, holdover.Decision{Pod: pod.Name})
		if p.Status >= http.StatusInternalServerError {
			p.Do = "look at the pod's status, then repeat the command" // the table speaks of tokens
		}
		return zero, p
	}
	return v, nil
}

// statuses asks all pods at once: the list is needed most when one of them is
// slow or broken, so its failure is an entry and not the answer.
func (a *api) statuses(ctx context.Context) []PodStatus {
	list := make([]PodStatus, len(a.Pods))
	var wg sync.WaitGroup
	for i, pod := range a.Pods {
		wg.Go(func() {
			s, err := a.contained(func() (PodStatus, error) { return onPod(ctx, a, pod.Name, Operator.Status) })
			if err != nil {
				s = PodStatus{Problem: err.Error()}
			}
			list[i] = s.filled(pod.Name)
		})
	}
	wg.Wait()
	return list
}

// authorize lets an operator through. It is bound to each operator route, so
// that no spelling of a path gets around it.
func (a *api) authorize(ctx huma.Context, next func(huma.Context)) {
	_, w := humago.Unwrap(ctx)
	if a.OperatorToken == "" {
		a.write(w, &Problem{Type: typeOf("operator-disabled"), Title: "Operator routes are off", Status: http.StatusForbidden,
			Detail: "no operator token is configured", Do: "set the operator token in the server's configuration and start it again"})
		return
	}
	scheme, given, _ := strings.Cut(ctx.Header("Authorization"), " ")
	digest := sha256.Sum256([]byte(strings.TrimSpace(given)))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(digest[:], a.token[:]) != 1 {
		challenge := `Bearer realm="holdover"`
		if given != "" {
			challenge += `, error="invalid_token"`
		}
		a.write(w, &Problem{Type: typeOf("unauthorized"), Title: "Unauthorized", Status: http.StatusUnauthorized,
			Detail: "operator routes need the operator's bearer token", Do: "send it as Authorization: Bearer TOKEN", authenticate: challenge})
		return
	}
	next(ctx)
}
