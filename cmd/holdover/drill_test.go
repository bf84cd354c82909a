package main

import (
	"slices"
	"strings"
	"testing"

	"holdover"
	"holdover/dualwrite"
	"holdover/internal/app"
	"holdover/internal/httpapi"
	"holdover/internal/teststack"
)

// TestDrill rehearses the kill as on-call does: with everybody there, with an
// instance that hangs, and when it is refused.
func TestDrill(t *testing.T) {
	teststack.NoLeaks(t)
	s := newSite(t, "pod-a").stocked()
	drill := []string{"drill", "--by", "ada", "--reason", "weekly"}
	s.want(2, []string{"--reason is missing"}, "drill")
	s.want(3, []string{"NO DRILL", "nothing was changed"}, drill...) // not begun
	s.serve("checkout-1").ready()
	two := s.serve("checkout-2").ready()
	s.flag("shadow")
	s.reach(holdover.StageShadow, 2)
	s.want(0, []string{"drill      never drilled: the kill switch has never been used", "holdover drill --pod pod-a --reason TEXT"}, "status")

	s.want(0, []string{"would latch the pod in shadow", "no truth changes", "stays in shadow, as the flag says"}, append(slices.Clone(drill), "--dry-run")...)
	if p := s.agreed(); p.Agreed.Epoch != 2 {
		t.Fatalf("a dry run changed the fence: %s", p.Agreed)
	}
	a := s.want(0, []string{"DRILLED  pod pod-a: shadow -> shadow, latched at epoch 4, and back", "2 instances acknowledged after", "acknowledged after", "the pod is in shadow at epoch 5, without a latch", "stays in shadow, as the flag says"}, drill...)
	if strings.Contains(a.out, "FAULT") {
		t.Error(a.out)
	}
	p := s.reach(holdover.StageShadow, 2)
	if p.Agreed.Latched || p.Drilled.Last == nil || p.Drilled.Passed == nil || p.Drilled.Last.By != "ada" || p.Drilled.Last.Instances != 2 || !p.Drilled.Last.OK {
		t.Errorf("%s %+v", p.Agreed, p.Drilled)
	}
	s.want(0, []string{"drill      drilled ", " from shadow: ", " ms, 2 instances"}, "status")
	eventually(t, "the instance knows of the drill", func() bool {
		text := two.get("/metrics").text
		return strings.Contains(text, `holdover_drill_age_seconds{pod="pod-a"}`) && strings.Contains(text, `holdover_drill_milliseconds{pod="pod-a"}`)
	})
	var served httpapi.PodStatus
	oneObject(t, two.operate("GET", "/v1/pods/pod-a", "").has(t, 200).text, &served)
	if served.Drilled.Passed == nil || !slices.ContainsFunc(served.Warnings, func(r httpapi.Reason) bool { return r.Code == dualwrite.CodeLastDrill }) {
		t.Errorf("the API says %+v, %+v", served.Drilled, served.Warnings)
	}

	// An instance that hangs: it has shown a sign of life, and shows no other.
	c, err := (&configFlags{Config: s.file}).load(&env{ctx: t.Context(), stderr: &lockedBuffer{}})
	if err != nil {
		t.Fatal(err)
	}
	stores, err := app.OpenStores(t.Context(), c, c.Pods[0])
	if err != nil {
		t.Fatal(err)
	}
	defer stores.Close(t.Context())
	hang := func() {
		if err := stores.Redis.Heartbeat(t.Context(), holdover.Instance{Name: "hangs", ID: "0123456789", Epoch: s.agreed().Agreed.Epoch}); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		OK   bool
		Pods []struct {
			Pod    string
			OK     bool
			Result app.DrilledPod
			Error  string
		}
	}
	var failed result
	hang()
	s.object(3, &failed, drill...)
	if r := failed.Pods[0]; failed.OK || r.OK || r.Result.OK || !r.Result.Restored || !r.Result.Recorded || len(r.Result.Missing) != 1 || !strings.Contains(r.Error, "hangs (01234567) is at epoch 5") {
		t.Errorf("%+v", failed)
	}
	if p := s.agreed(); p.Agreed.Latched || p.Drilled.Last.OK || !p.Drilled.Passed.OK {
		t.Errorf("%s %+v", p.Agreed, p.Drilled)
	}
	s.want(0, []string{"FAILED: not acknowledged within 2s: hangs"}, "status")
	if err := stores.Redis.Forget(t.Context(), "0123456789"); err != nil {
		t.Fatal(err)
	}

	s.want(0, []string{"KILLED"}, "kill", "--reason", "in earnest")
	var refused result
	s.object(3, &refused, drill...)
	if r := refused.Pods[0]; len(r.Result.Reasons) == 0 || r.Result.Reasons[0].Code != "latched" || r.Result.Latched != nil {
		t.Errorf("%+v", refused)
	}
	if p := s.agreed(); !p.Agreed.Latched || p.Agreed.Reason != "in earnest" {
		t.Errorf("the drill moved a latched pod: %s", p.Agreed)
	}
}
