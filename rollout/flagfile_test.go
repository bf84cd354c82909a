package rollout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/diegoholiveira/jsonlogic/v3"

	"holdover"
	"holdover/rollout"
)

const variants = `"variants":{"redis":"redis","shadow":"shadow","joint":"joint","mysql":"mysql"}`

// file is a flag file with this targeting.
func file(targeting string) string {
	return `{"flags":{"holdover-stage":{"state":"ENABLED",` + variants + `,"defaultVariant":"redis","targeting":` + targeting + `}}}`
}

func TestRulesChooseAVariant(t *testing.T) {
	for _, c := range []struct {
		name, targeting string
		want            map[string]string // stage by pod
	}{
		{"none", `{}`, map[string]string{"a": "redis"}},
		{"equal", `{"if":[{"==":[{"var":"pod"},"a"]},"mysql","shadow"]}`, map[string]string{"a": "mysql", "b": "shadow", "aa": "shadow"}},
		{"equal turned round", `{"if":[{"==":["a",{"var":"pod"}]},"mysql"]}`, map[string]string{"a": "mysql", "b": "redis"}},
		{"in a list", `{"if":[{"in":[{"var":"pod"},["a","b"]]},"joint"]}`, map[string]string{"a": "joint", "b": "joint", "c": "redis", "": "redis"}},
		{"else if", `{"if":[{"==":[{"var":"pod"},"a"]},"mysql",{"in":[{"var":"pod"},["b","c"]]},"joint","shadow"]}`,
			map[string]string{"a": "mysql", "b": "joint", "c": "joint", "d": "shadow"}},
		{"nested", `{"if":[{"in":[{"var":"pod"},["a","b"]]},{"if":[{"==":[{"var":"pod"},"a"]},"mysql",null]},"shadow"]}`,
			map[string]string{"a": "mysql", "b": "redis", "c": "shadow"}},
		{"null falls back", `{"if":[{"==":[{"var":"pod"},"a"]},null,"shadow"]}`, map[string]string{"a": "redis", "b": "shadow"}},
		{"names that look like numbers", `{"if":[{"==":[{"var":"pod"},"1"]},"mysql"]}`, map[string]string{"1": "mysql", "01": "redis", "1.0": "redis"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, err := rollout.ParseFlags([]byte(file(c.targeting)))
			if err != nil {
				t.Fatal(err)
			}
			for pod, want := range c.want {
				if got := set.For(pod); got.Stage.String() != want || got.Variant != want {
					t.Errorf("pod %q gets %+v, want %s", pod, got, want)
				}
			}
		})
	}
}

func TestWhatIsRefusedWithItsPlace(t *testing.T) {
	const flag = "flags.holdover-stage"
	whole := func(inner string) string { return `{"flags":{"holdover-stage":{` + inner + `}}}` }
	const ok = `"state":"ENABLED",` + variants + `,"defaultVariant":"redis"`
	for name, c := range map[string]struct{ content, place string }{
		"empty":                  {"", "line 1"},
		"blank":                  {" \n ", "line 1"},
		"half written":           {file(`{}`)[:60], "line 1, column 61"},
		"no JSON":                {"{\n  nonsense}", "line 2"},
		"not UTF-8":              {"{\"flags\":\"\xff\"}", "the file"},
		"trailing garbage":       {file(`{}`) + "x", "line 1"},
		"two objects":            {file(`{}`) + "{}", "line 1"},
		"an array":               {`[]`, "the file"},
		"no flags":               {`{}`, "flags"},
		"flags is a list":        {`{"flags":[]}`, "flags"},
		"no stage flag":          {`{"flags":{}}`, flag},
		"misspelled flag":        {`{"flags":{"holdover-stages":{}}}`, "flags.holdover-stages"},
		"unknown key":            {`{"flag":{}}`, "flag"},
		"shared rules":           {`{"$evaluators":{},"flags":{}}`, "$evaluators"},
		"schema of wrong type":   {`{"$schema":1,"flags":{}}`, "$schema"},
		"metadata of wrong type": {`{"metadata":{"a":{}},"flags":{}}`, "metadata.a"},
		"flag twice":             {`{"flags":{"holdover-stage":{` + ok + `},"holdover-stage":{` + ok + `}}}`, flag},
		"key twice, escaped":     {whole(ok + `,"st\u0061te":"ENABLED"`), flag + ".state"},
		"flag is a string":       {`{"flags":{"holdover-stage":"redis"}}`, flag},
		"no state":               {whole(variants + `,"defaultVariant":"redis"`), flag + ".state"},
		"disabled":               {whole(`"state":"DISABLED",` + variants + `,"defaultVariant":"redis"`), flag + ".state"},
		"strange state":          {whole(`"state":"enabled",` + variants + `,"defaultVariant":"redis"`), flag + ".state"},
		"state is a boolean":     {whole(`"state":true,` + variants + `,"defaultVariant":"redis"`), flag + ".state"},
		"no variants":            {whole(`"state":"ENABLED","defaultVariant":"redis"`), flag + ".variants"},
		"empty variants":         {whole(`"state":"ENABLED","variants":{},"defaultVariant":"redis"`), flag + ".variants"},
		"variant twice":          {whole(`"state":"ENABLED","variants":{"redis":"redis","redis":"mysql"},"defaultVariant":"redis"`), flag + ".variants.redis"},
		"variant is no stage":    {whole(`"state":"ENABLED","variants":{"redis":"redis","on":"mysq"},"defaultVariant":"redis"`), flag + ".variants.on"},
		"variant is a boolean":   {whole(`"state":"ENABLED","variants":{"redis":true},"defaultVariant":"redis"`), flag + ".variants.redis"},
		"variant misleads":       {whole(`"state":"ENABLED","variants":{"redis":"mysql"},"defaultVariant":"redis"`), flag + ".variants.redis"},
		"no default":             {whole(`"state":"ENABLED",` + variants), flag + ".defaultVariant"},
		"default is null":        {whole(`"state":"ENABLED",` + variants + `,"defaultVariant":null`), flag + ".defaultVariant"},
		"unknown default":        {whole(`"state":"ENABLED",` + variants + `,"defaultVariant":"on"`), flag + ".defaultVariant"},
		"unknown flag key":       {whole(ok + `,"source":"x"`), flag + ".source"},
		"targeting is a string":  {file(`"redis"`), flag + ".targeting"},
		"targeting is null":      {file(`null`), flag + ".targeting"},
		"unknown operator":       {file(`{"if":[{"starts_with":[{"var":"pod"},"a"]},"mysql"]}`), flag + ".targeting.if[0].starts_with"},
		"misspelled operator":    {file(`{"if":[{"=":[{"var":"pod"},"a"]},"mysql"]}`), flag + ".targeting.if[0].="},
		"fractional":             {file(`{"fractional":[["mysql",50],["redis",50]]}`), flag + ".targeting.fractional"},
		"$ref":                   {file(`{"$ref":"all"}`), flag + ".targeting.$ref"},
		"not an if":              {file(`{"==":[{"var":"pod"},"a"]}`), flag + ".targeting.=="},
		"two operators":          {file(`{"if":["redis","redis"],"in":[]}`), flag + ".targeting"},
		"constant condition":     {file(`{"if":[true,"mysql"]}`), flag + ".targeting.if[0]"},
		"nested condition":       {file(`{"if":[{"if":[{"==":[{"var":"pod"},"a"]},true]},"mysql"]}`), flag + ".targeting.if[0].if"},
		"if is no list":          {file(`{"if":"mysql"}`), flag + ".targeting.if"},
		"if without a variant":   {file(`{"if":[{"==":[{"var":"pod"},"a"]}]}`), flag + ".targeting.if"},
		"unknown variant":        {file(`{"if":[{"==":[{"var":"pod"},"a"]},"mysq"]}`), flag + ".targeting.if[1]"},
		"unknown last variant":   {file(`{"if":[{"==":[{"var":"pod"},"a"]},"mysql","off"]}`), flag + ".targeting.if[2]"},
		"variant is a number":    {file(`{"if":[{"==":[{"var":"pod"},"a"]},1]}`), flag + ".targeting.if[1]"},
		"other variable":         {file(`{"if":[{"==":[{"var":"shop"},"a"]},"mysql"]}`), flag + ".targeting.if[0].==[0].var"},
		"variable with default":  {file(`{"if":[{"==":[{"var":["pod","a"]},"a"]},"mysql"]}`), flag + ".targeting.if[0].==[0].var"},
		"equal to a number":      {file(`{"if":[{"==":[{"var":"pod"},1]},"mysql"]}`), flag + ".targeting.if[0].==[1]"},
		"equal to nothing":       {file(`{"if":[{"==":[{"var":"pod"},""]},"mysql"]}`), flag + ".targeting.if[0].==[1]"},
		"equal of three":         {file(`{"if":[{"==":[{"var":"pod"},"a","b"]},"mysql"]}`), flag + ".targeting.if[0].=="},
		"two texts":              {file(`{"if":[{"==":["a","a"]},"mysql"]}`), flag + ".targeting.if[0].==[1]"},
		"in a text":              {file(`{"if":[{"in":[{"var":"pod"},"abc"]},"mysql"]}`), flag + ".targeting.if[0].in[1]"},
		"in nothing":             {file(`{"if":[{"in":[{"var":"pod"},[]]},"mysql"]}`), flag + ".targeting.if[0].in[1]"},
		"in a list of numbers":   {file(`{"if":[{"in":[{"var":"pod"},["a",2]]},"mysql"]}`), flag + ".targeting.if[0].in[1][1]"},
		"in turned round":        {file(`{"if":[{"in":["a",{"var":"pod"}]},"mysql"]}`), flag + ".targeting.if[0].in[0]"},
		"pod twice in a list":    {file(`{"if":[{"in":[{"var":"pod"},["a","a"]]},"mysql"]}`), flag + ".targeting.if[0].in[1][1]"},
		"very deep":              {file(strings.Repeat(`{"if":[{"==":[{"var":"pod"},"a"]},`, 60) + `"mysql"` + strings.Repeat(`]}`, 60)), flag + ".targeting.if[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rollout.ParseFlags([]byte(c.content))
			var where *rollout.FileError
			if !errors.As(err, &where) {
				t.Fatalf("error is %v", err)
			}
			// A place that is a path must be exact; for the others the line has to do.
			if where.Place != c.place && !(strings.HasPrefix(c.place, "line") || name == "very deep") || !strings.HasPrefix(where.Place, c.place) {
				t.Errorf("place is %q, want %q (%s)", where.Place, c.place, where.Problem)
			}
		})
	}
}

func TestTheExampleFileIsGood(t *testing.T) {
	content, err := os.ReadFile("../deploy/flags/stages.json")
	if err != nil {
		t.Fatal(err)
	}
	set, err := rollout.ParseFlags(content)
	if err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[string]holdover.Stage{"pod-a": holdover.StageJoint, "pod-b": holdover.StageShadow, "pod-c": holdover.StageRedis} {
		if got := set.For(pod).Stage; got != want {
			t.Errorf("%s gets %s, want %s as its README says", pod, got, want)
		}
	}
}

// FuzzParse: no input makes the parser panic, and what it accepts gives every
// pod a legal stage, the one that JSONLogic itself gives.
func FuzzParse(f *testing.F) {
	for _, targeting := range []string{`{}`, `{"if":[{"==":[{"var":"pod"},"a"]},"mysql",{"in":[{"var":"pod"},["b","c"]]},"joint",null]}`,
		`{"if":[{"in":[{"var":"pod"},["a","b"]]},{"if":[{"==":["a",{"var":"pod"}]},"mysql",null]},"shadow"]}`,
		`{"if":[{"and":[true]},"mysql"]}`, `{"if":[1,2,3]}`, `[]`, `{"var":"pod"}`} {
		f.Add([]byte(file(targeting)), "a")
	}
	f.Add([]byte(`{"flags":{"holdover-stage":{"state":"ENABLED","variants":{"on":"mysql"},"defaultVariant":"on"},"x":{}},"metadata":{"a":1}}`), "b")
	f.Add([]byte(`{"flags":`), "")
	f.Fuzz(func(t *testing.T, content []byte, pod string) {
		set, err := rollout.ParseFlags(content)
		if err != nil {
			var where *rollout.FileError
			if !errors.As(err, &where) || where.Place == "" {
				t.Errorf("an error without a place: %v", err)
			}
			return
		}
		for _, pod := range []string{pod, "a", "b", "1"} {
			got := set.For(pod)
			if _, err := holdover.ParseStage(got.Stage.String()); err != nil {
				t.Errorf("pod %q gets %+v", pod, got)
			}
			if want := byLibrary(t, content, pod); got.Variant != want {
				t.Errorf("pod %q gets variant %q, JSONLogic says %q", pod, got.Variant, want)
			}
		}
	})
}

// byLibrary evaluates an accepted file with the JSONLogic library.
func byLibrary(t *testing.T, content []byte, pod string) string {
	var parsed struct {
		Flags map[string]struct {
			DefaultVariant string          `json:"defaultVariant"`
			Targeting      json.RawMessage `json:"targeting"`
		} `json:"flags"`
	}
	if err := json.Unmarshal(content, &parsed); err != nil {
		t.Fatal(err)
	}
	flag := parsed.Flags[rollout.StageFlag]
	if len(flag.Targeting) == 0 || bytes.Equal(bytes.TrimSpace(flag.Targeting), []byte("{}")) {
		return flag.DefaultVariant
	}
	data, err := json.Marshal(map[string]string{"pod": pod})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := jsonlogic.ApplyRaw(flag.Targeting, data)
	if err != nil {
		t.Fatal(err)
	}
	var variant any
	if err := json.Unmarshal(raw, &variant); err != nil {
		t.Fatal(err)
	}
	switch v := variant.(type) {
	case string:
		return v
	case nil:
		return flag.DefaultVariant
	default:
		return fmt.Sprint(raw)
	}
}
