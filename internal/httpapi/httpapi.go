package httpapi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"holdover"
)

// Config says what the API serves. Only Pods is required.
type Config struct {
	// Pods are served in this order: the first whose Shops says yes gets a shop's calls.
	Pods []Pod

	// OperatorToken is the bearer token of the operator routes. Empty: these
	// routes answer 403 and say how to configure it.
	OperatorToken string

	// MaxBody is the largest request body in bytes; 64 KiB.
	MaxBody int64

	// BodyTimeout is how long a client may take to send its body; 5 s.
	BodyTimeout time.Duration

	// OperatorTimeout bounds one operator call, verification included; 60 s.
	OperatorTimeout time.Duration

	// Metrics serves /metrics; nil: 404.
	Metrics http.Handler

	// Ready reports whether this instance should get traffic, and why not.
	// It must answer from memory. Nil: always ready.
	Ready func() (bool, []string)

	// Version is shown by /healthz and in the OpenAPI document; "dev".
	Version string

	// Limits bound a reservation; zero fields mean the root package's defaults.
	Limits holdover.Limits

	// DefaultTTL is the time to live of a reservation that names none; 15 min.
	DefaultTTL time.Duration

	// RetryAfter is what a 503 tells the client to wait, rounded up to whole
	// seconds; 1 s.
	RetryAfter time.Duration

	// OnPanic is called once for each panic of a handler, for a counter; nil: nothing.
	OnPanic func()

	// Logger gets panics and errors that have no name; nil: slog.Default().
	Logger *slog.Logger
}

// Pod is one pod as the API sees it.
type Pod struct {
	Name     string
	Shops    func(shop int64) bool // whether the pod serves the shop; fast, and safe for concurrent use
	Reserver holdover.Reserver
	Operator Operator // nil: the pod's operator routes answer 503
}

func (c Config) withDefaults() Config {
	if c.MaxBody == 0 {
		c.MaxBody = 64 << 10
	}
	if c.BodyTimeout == 0 {
		c.BodyTimeout = 5 * time.Second
	}
	if c.OperatorTimeout == 0 {
		c.OperatorTimeout = 60 * time.Second
	}
	if c.Ready == nil {
		c.Ready = func() (bool, []string) { return true, nil }
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.DefaultTTL == 0 {
		c.DefaultTTL = 15 * time.Minute
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = time.Second
	}
	if c.OnPanic == nil {
		c.OnPanic = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// validate looks at the config as a whole, after the defaults.
func (c Config) validate() error {
	if len(c.Pods) == 0 {
		return errors.New("http api: no pods: configure at least one")
	}
	names := map[string]bool{}
	for i, p := range c.Pods {
		switch {
		case p.Name == "" || strings.ContainsAny(p.Name, "/?#%"):
			return fmt.Errorf("http api: pod %d has the name %q: it must be usable in a URL path", i+1, p.Name)
		case names[p.Name]:
			return fmt.Errorf("http api: pod %s is configured twice", p.Name)
		case p.Shops == nil || p.Reserver == nil:
			return fmt.Errorf("http api: pod %s has no shops or no reserver", p.Name)
		}
		names[p.Name] = true
	}
	if c.MaxBody < 0 || c.BodyTimeout < 0 || c.OperatorTimeout < 0 || c.RetryAfter < 0 {
		return errors.New("http api: limits and times must not be negative")
	}
	if strings.TrimSpace(c.OperatorToken) != c.OperatorToken {
		return errors.New("http api: the operator token begins or ends with white space: no client could send it")
	}
	probe := holdover.Request{Shop: 1, Token: holdover.NewToken(), Lines: []holdover.Line{{Item: 1, Group: 1, Quantity: 1}}, TTL: c.DefaultTTL}
	if _, err := probe.Normalize(c.Limits); err != nil {
		return fmt.Errorf("http api: the default time to live is outside the limits: %w", err)
	}
	return nil
}

// api is what the handlers share: read only after New.
type api struct {
	Config
	token [sha256.Size]byte // of the operator token: digests of equal length compare in constant time
}

// New returns the handler of the whole API. It starts nothing.
func New(c Config) (http.Handler, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	a := &api{Config: c, token: sha256.Sum256([]byte(c.OperatorToken))}

	mux := http.NewServeMux()
	routes := humago.New(mux, a.humaConfig())
	a.registerReservations(routes)
	a.registerOperator(routes)
	a.registerAdjustments(routes)
	a.registerHealth(routes)
	if c.Metrics != nil {
		mux.Handle("GET /metrics", c.Metrics)
	}
	if err := a.serveOpenAPI(mux, routes.OpenAPI()); err != nil {
		return nil, err
	}

	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a.write(w, &Problem{Type: typeOf("cross-origin"), Title: "Cross-origin request", Status: http.StatusForbidden,
			Detail: "this API is not for browsers of other sites"})
	}))
	return a.shield(crossOrigin.Handler(a.readBody(a.route(mux)))), nil
}

// podOf finds the pod that serves a shop.
func (a *api) podOf(shop int64) (*Pod, error) {
	for i := range a.Pods {
		if a.Pods[i].Shops(shop) {
			return &a.Pods[i], nil
		}
	}
	return nil, &Problem{Type: typeOf("unknown-shop"), Title: "Unknown shop", Status: http.StatusNotFound,
		Detail: fmt.Sprintf("no pod of this instance serves shop %d", shop),
		Do:     "check the shop number, or send the request to an instance of the shop's pod"}
}

// podNamed finds a pod by its name.
func (a *api) podNamed(name string) (*Pod, error) {
	i := slices.IndexFunc(a.Pods, func(p Pod) bool { return p.Name == name })
	if i < 0 {
		names := make([]string, len(a.Pods))
		for i, p := range a.Pods {
			names[i] = p.Name
		}
		return nil, &Problem{Type: typeOf("unknown-pod"), Title: "Unknown pod", Status: http.StatusNotFound,
			Detail: fmt.Sprintf("there is no pod %q", clip(name)), Do: "use one of: " + strings.Join(names, ", ")}
	}
	return &a.Pods[i], nil
}

// humaConfig is huma's without what it would add by itself: a docs page that
// loads scripts from elsewhere, schema links in answers, and a lazily built
// OpenAPI document (built without a lock).
func (a *api) humaConfig() huma.Config {
	c := huma.DefaultConfig("holdover", a.Version)
	c.Info.Description = "Checkout reservations, and the operator's view of their migration from Redis to MySQL."
	c.DocsPath, c.SchemasPath, c.OpenAPIPath, c.CreateHooks = "", "", "", nil
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshalStrict}
	c.Formats = map[string]huma.Format{"application/json": format, "json": format} // json: what follows the + of problem+json
	c.Transformers = []huma.Transformer{func(_ huma.Context, _ string, v any) (any, error) {
		if m, ok := v.(*huma.ErrorModel); ok {
			return fromHuma(m), nil
		}
		return v, nil
	}}
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"operator": {Type: "http", Scheme: "bearer"}}
	return c
}
