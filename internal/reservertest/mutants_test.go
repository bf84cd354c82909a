package reservertest_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdover"
	"holdover/internal/model"
	"holdover/internal/reservertest"
)

// mutant is one fault. caughtBy are the subtests of the suite that must fail
// because of it, each of them.
type mutant struct {
	caughtBy []string
	spoil    func(f *reservertest.Fixture, m *model.Model)
}

// broken is a model of which some methods are replaced.
type broken struct {
	*model.Model
	reserve func(ctx context.Context, r holdover.Request) (holdover.Result, error)
	claim   func(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error)
	extend  func(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error)
	release func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error)
	lookup  func(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error)
}

func (b broken) Reserve(ctx context.Context, r holdover.Request) (holdover.Result, error) {
	if b.reserve != nil {
		return b.reserve(ctx, r)
	}
	return b.Model.Reserve(ctx, r)
}

func (b broken) Claim(ctx context.Context, shop int64, token holdover.Token, lines ...holdover.Line) (holdover.Result, error) {
	if b.claim != nil {
		return b.claim(ctx, shop, token, lines...)
	}
	return b.Model.Claim(ctx, shop, token, lines...)
}

func (b broken) Extend(ctx context.Context, shop int64, token holdover.Token, ttl time.Duration) (holdover.Result, error) {
	if b.extend != nil {
		return b.extend(ctx, shop, token, ttl)
	}
	return b.Model.Extend(ctx, shop, token, ttl)
}

func (b broken) Release(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	if b.release != nil {
		return b.release(ctx, shop, token)
	}
	return b.Model.Release(ctx, shop, token)
}

func (b broken) Lookup(ctx context.Context, shop int64, token holdover.Token) (holdover.Result, error) {
	if b.lookup != nil {
		return b.lookup(ctx, shop, token)
	}
	return b.Model.Lookup(ctx, shop, token)
}

// put adds units to the places of lines, times sign.
func put(m *model.Model, shop int64, lines []holdover.Line, sign int64) {
	for _, l := range lines {
		m.Load(shop, map[[2]int64]int64{{l.Item, l.Group}: sign * l.Quantity})
	}
}

// pause between a check and the act after it, long enough for everybody else
// to make the same check: a race that is never won by luck.
func pause() {
	for range 100 {
		runtime.Gosched()
	}
}

// mutants are all faults by their names.
func mutants() map[string]mutant {
	all := maps.Clone(reserveMutants)
	maps.Copy(all, endMutants)
	maps.Copy(all, partMutants)
	maps.Copy(all, extendMutants)
	maps.Copy(all, choiceMutants)
	maps.Copy(all, lateMutants)
	return all
}

var failed = regexp.MustCompile(`(?m)^ +--- FAIL: .*$`)

// topLevel are the subtests of the suite that have these subtests; the others
// need not run.
func topLevel(names []string) []string {
	tops := make([]string, len(names))
	for i, name := range names {
		tops[i], _, _ = strings.Cut(name, "/")
	}
	return tops
}

// TestMutants: a suite that no fault can fail proves nothing.
func TestMutants(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, mut := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), program, "-test.run=^TestModel$/^.*$/^("+strings.Join(topLevel(mut.caughtBy), "|")+")$", "-test.timeout=2m",
				"-rapid.nofailfile", "-rapid.shrinktime=100ms", "-rapid.seed=1")
			child.Env = append(os.Environ(), mutantVar+"="+name)
			out, err := child.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || bytes.Contains(out, []byte("panic:")) {
				t.Fatalf("the suite did not fail as a test fails (%v):\n%s", err, out)
			}
			for _, subtest := range mut.caughtBy {
				// The part of a location mode is enough for faults that one mode can't have.
				if !bytes.Contains(out, []byte("--- FAIL: TestModel/ByLocation/"+subtest+" (")) &&
					!bytes.Contains(out, []byte("--- FAIL: TestModel/SumOverLocations/"+subtest+" (")) {
					t.Errorf("%s did not fail; the subtests that did:\n%s", subtest, failed.FindAll(out, -1))
				}
			}
		})
	}
}
