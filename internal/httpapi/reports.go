package httpapi

import (
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// ReportRequest says what a report is about and how it is shown. Since and Until
// are RFC 3339 times, dates, or durations back from now, like 24h or 7d.
type ReportRequest struct {
	Since, Until string
	Format       string // json, html, md or text
}

// ReportPage is a report in its format.
type ReportPage struct {
	ContentType string
	Body        []byte
}

// SignRequest is the body of a sign-off.
type SignRequest struct {
	As       string `json:"as" minLength:"1" maxLength:"100" pattern:"\\S" patternDescription:"a name" doc:"Who decides."`
	Decision string `json:"decision" enum:"go,no-go"`
	Note     string `json:"note" minLength:"1" maxLength:"1000" pattern:"\\S" patternDescription:"a note" doc:"Why; kept with the decision."`
	Since    string `json:"since" minLength:"1" maxLength:"40" doc:"The beginning of the report's period: its RFC 3339 time, or a duration back from now."`
	Until    string `json:"until,omitempty" maxLength:"40" doc:"Its end; now when left out."`
	Digest   string `json:"digest,omitempty" maxLength:"128" doc:"Of the report that was read: another one is refused."`
	Override string `json:"override,omitempty" maxLength:"500" doc:"Why a report that does not pass is a go all the same; kept in the note."`
}

type reportInput struct {
	Pod    string `path:"pod" maxLength:"100"`
	Since  string `query:"since" maxLength:"40" default:"7d" doc:"An RFC 3339 time, a date, or a duration back from the last full minute, like 24h or 7d; at most 31 days before the end. One report is made at a time: another is answered 503, repeat it."`
	Until  string `query:"until" maxLength:"40" doc:"The same; the last full minute when left out."`
	Format string `query:"format" enum:"json,html,md,text" default:"json"`
}

type reportOutput struct {
	ContentType string `header:"Content-Type"`
	Policy      string `header:"Content-Security-Policy"`
	Body        []byte
}

type signInput struct {
	Pod  string `path:"pod" maxLength:"100"`
	Body SignRequest
}

// reportPolicy: a report has its styles inside it, and loads and runs nothing.
const reportPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (a *api) registerReports(routes huma.API, operator func(huma.Operation, reflect.Type) huma.Operation) {
	report := operator(huma.Operation{OperationID: "report", Method: http.MethodGet, Path: "/v1/pods/{pod}/report",
		Summary: "The divergence report of all instances, from what MySQL keeps"}, reflect.TypeFor[any]())
	for _, kind := range []string{"text/html", "text/markdown", "text/plain"} {
		report.Responses["200"].Content[kind] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	huma.Register(routes, report, func(ctx context.Context, in *reportInput) (*reportOutput, error) {
		page, err := onPod(ctx, a, in.Pod, func(o Operator, ctx context.Context) (ReportPage, error) {
			return o.Report(ctx, ReportRequest{Since: in.Since, Until: in.Until, Format: in.Format})
		})
		return &reportOutput{page.ContentType, reportPolicy, page.Body}, err
	})
	huma.Register(routes, operator(huma.Operation{OperationID: "sign", Method: http.MethodPost, Path: "/v1/pods/{pod}/report/sign",
		Summary: "Record somebody's decision about a report"}, reflect.TypeFor[any]()),
		func(ctx context.Context, in *signInput) (*anyOutput, error) {
			v, err := onPod(ctx, a, in.Pod, func(o Operator, ctx context.Context) (any, error) { return o.Sign(ctx, in.Body) })
			return &anyOutput{v}, err
		})
}
