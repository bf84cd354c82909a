package rollout

import (
	"strings"

	"holdover"
)

// StageFlag is the key of the flag that says which stage a pod should be in.
const StageFlag = "holdover-stage"

// FlagSet is a flag file that was checked whole. It never changes.
type FlagSet struct {
	variants       map[string]holdover.Stage
	defaultVariant string
	rule           rule // nil: no targeting
}

// Choice is what a flag set says about one pod.
type Choice struct {
	Stage    holdover.Stage
	Variant  string
	Targeted bool // a rule chose it; else it is the default variant
	HasRules bool
}

// ParseFlags reads a flag file in flagd's schema. The error is a *FileError
// with the place of the first thing that is wrong.
func ParseFlags(data []byte) (*FlagSet, error) {
	root, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	if root.kind != kindObject {
		return nil, wrong("the file", "must be an object with \"flags\", not %s", root.kind)
	}
	var flags *node
	for i, m := range root.members {
		switch m.key {
		case "$schema":
			if m.kind != kindString {
				return nil, wrong(m.place, "must be a string, not %s", m.kind)
			}
		case "metadata":
			if err := checkMetadata(m.node); err != nil {
				return nil, err
			}
		case "flags":
			flags = &root.members[i].node
		case "$evaluators":
			return nil, wrong(m.place, "shared rules are not supported: write the rule in the flag")
		default:
			return nil, wrong(m.place, "is not a key of a flag file: want flags, metadata or $schema")
		}
	}
	switch {
	case flags == nil:
		return nil, wrong("flags", "is missing")
	case flags.kind != kindObject:
		return nil, wrong(flags.place, "must be an object, not %s", flags.kind)
	}
	var set *FlagSet
	for _, m := range flags.members {
		if m.key != StageFlag {
			return nil, wrong(m.place, "is not a flag of this program: it reads %q only", StageFlag)
		}
		if set, err = parseStageFlag(m.node); err != nil {
			return nil, err
		}
	}
	if set == nil {
		return nil, wrong("flags."+StageFlag, "is missing")
	}
	return set, nil
}

func parseStageFlag(flag node) (*FlagSet, error) {
	if flag.kind != kindObject {
		return nil, wrong(flag.place, "must be an object, not %s", flag.kind)
	}
	var state, variants, fallback, targeting *node
	for i, m := range flag.members {
		at := &flag.members[i].node
		switch m.key {
		case "state":
			state = at
		case "variants":
			variants = at
		case "defaultVariant":
			fallback = at
		case "targeting":
			targeting = at
		case "metadata":
			if err := checkMetadata(m.node); err != nil {
				return nil, err
			}
		default:
			return nil, wrong(m.place, "is not a key of a flag: want state, variants, defaultVariant, targeting or metadata")
		}
	}
	if err := checkState(flag.place, state); err != nil {
		return nil, err
	}
	set := &FlagSet{variants: map[string]holdover.Stage{}}
	if err := set.addVariants(flag.place, variants); err != nil {
		return nil, err
	}
	if fallback == nil {
		return nil, wrong(join(flag.place, "defaultVariant"), "is missing: say what holds for a pod that no rule names")
	}
	name, ok := fallback.text()
	if !ok {
		return nil, wrong(fallback.place, "must be the name of a variant, not %s", fallback.kind)
	}
	if _, ok := set.variants[name]; !ok {
		return nil, wrong(fallback.place, "%s is not one of the variants", quote(name))
	}
	set.defaultVariant = name
	if targeting == nil {
		return set, nil
	}
	if targeting.kind != kindObject {
		return nil, wrong(targeting.place, "must be an object, not %s", targeting.kind)
	}
	if len(targeting.members) == 0 {
		return set, nil // flagd's way to say: no rules
	}
	var err error
	set.rule, err = set.parseRule(*targeting)
	return set, err
}

func checkState(place string, state *node) error {
	if state == nil {
		return wrong(join(place, "state"), "is missing: want \"ENABLED\"")
	}
	switch s, ok := state.text(); {
	case !ok:
		return wrong(state.place, "must be \"ENABLED\", not %s", state.kind)
	case s == "DISABLED":
		return wrong(state.place, "is DISABLED: without this flag no pod has a desired stage; to keep pods where they are, name their stages")
	case s != "ENABLED":
		return wrong(state.place, "must be \"ENABLED\", not %s", quote(s))
	}
	return nil
}

func (set *FlagSet) addVariants(place string, variants *node) error {
	switch {
	case variants == nil:
		return wrong(join(place, "variants"), "is missing")
	case variants.kind != kindObject:
		return wrong(variants.place, "must be an object, not %s", variants.kind)
	case len(variants.members) == 0:
		return wrong(variants.place, "is empty")
	}
	for _, v := range variants.members {
		value, ok := v.text()
		if !ok {
			return wrong(v.place, "must be the name of a stage, not %s", v.kind)
		}
		stage, err := holdover.ParseStage(value)
		if err != nil {
			return wrong(v.place, "%s is not a stage: want redis, shadow, joint, mysql or mysql-only", quote(value))
		}
		// A variant that is called like another stage would mislead whoever
		// reads the rules in a hurry.
		if named, err := holdover.ParseStage(v.key); err == nil && named != stage {
			return wrong(v.place, "is called like a stage and stands for another one, %s", stage)
		}
		if v.key == "" {
			return wrong(v.place, "a variant needs a name")
		}
		set.variants[v.key] = stage
	}
	return nil
}

// checkMetadata tolerates flagd's metadata: names with plain values.
func checkMetadata(n node) error {
	if n.kind != kindObject {
		return wrong(n.place, "must be an object, not %s", n.kind)
	}
	for _, m := range n.members {
		if m.kind != kindString && m.kind != kindNumber && m.kind != kindBool {
			return wrong(m.place, "must be a string, a number or a boolean, not %s", m.kind)
		}
	}
	return nil
}

// For says which stage the set wants for a pod.
func (set *FlagSet) For(pod string) Choice {
	c := Choice{Variant: set.defaultVariant, HasRules: set.rule != nil}
	if set.rule != nil {
		if variant, ok := set.rule.choose(pod); ok {
			c.Variant, c.Targeted = variant, true
		}
	}
	c.Stage = set.variants[c.Variant]
	return c
}

// variantNames lists the variants for a message, in the order of the stages.
func (set *FlagSet) variantNames() string {
	var names []string
	for _, stage := range holdover.Stages() {
		for name, s := range set.variants {
			if s == stage {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ", ")
}
