package rollout_test

import (
	"fmt"

	"holdover/rollout"
)

func ExampleParseFlags() {
	set, err := rollout.ParseFlags([]byte(`{"flags": {"holdover-stage": {
		"state": "ENABLED",
		"variants": {"redis": "redis", "shadow": "shadow"},
		"defaultVariant": "redis",
		"targeting": {"if": [{"in": [{"var": "pod"}, ["eu-1", "eu-2"]]}, "shadow"]}
	}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(set.For("eu-1").Stage, set.For("us-1").Stage)

	_, err = rollout.ParseFlags([]byte(`{"flags": {"holdover-stage": {
		"state": "ENABLED",
		"variants": {"redis": "redis", "mysql": "mysql"},
		"defaultVariant": "redis",
		"targeting": {"if": [{"starts_wiht": [{"var": "pod"}, "eu"]}, "mysql"]}
	}}}`))
	fmt.Println(err)
	// Output:
	// shadow redis
	// flags.holdover-stage.targeting.if[0].starts_wiht: operator "starts_wiht" is not supported: want if, == or in
}
