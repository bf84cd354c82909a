package rollout

import "slices"

// The rules of a flag file are the part of JSONLogic that reads as a table of
// pods. In JSONLogic an operator that nobody knows is true, so a typo could
// choose a stage: what is not listed here is refused when the file is loaded.
//
//	result     a variant, null (the default variant), or
//	           {"if": [condition, result, condition, result, ..., result]}
//	condition  {"==": [{"var": "pod"}, "name"]} or
//	           {"in": [{"var": "pod"}, ["name", ...]]}

// rule chooses a variant; false: none of its own, the default variant holds.
type rule interface {
	choose(pod string) (variant string, ok bool)
}

type constant string

func (c constant) choose(string) (string, bool) { return string(c), true }

type noChoice struct{}

func (noChoice) choose(string) (string, bool) { return "", false }

type branches []branch

type branch struct {
	pods   []string // nil: every pod
	result rule
}

func (b branches) choose(pod string) (string, bool) {
	for _, one := range b {
		if one.pods == nil || slices.Contains(one.pods, pod) {
			return one.result.choose(pod)
		}
	}
	return "", false
}

func (set *FlagSet) parseRule(n node) (rule, error) {
	switch n.kind {
	case kindNull:
		return noChoice{}, nil
	case kindString:
		name, _ := n.text()
		if _, ok := set.variants[name]; !ok {
			return nil, wrong(n.place, "%s is not one of the variants: want %s", quote(name), set.variantNames())
		}
		return constant(name), nil
	case kindObject:
		return set.parseIf(n)
	default:
		return nil, wrong(n.place, "must be the name of a variant, null or an \"if\", not %s", n.kind)
	}
}

func (set *FlagSet) parseIf(n node) (rule, error) {
	op, err := operator(n)
	if err != nil {
		return nil, err
	}
	if op.key != "if" {
		return nil, wrong(op.place, "only \"if\" can choose a variant")
	}
	if op.kind != kindArray || len(op.items) < 2 {
		return nil, wrong(op.place, "must be an array of condition, variant, condition, variant, ..., and a last variant for all others")
	}
	var b branches
	for i := 0; i < len(op.items); i += 2 {
		var one branch
		result := op.items[i]
		if i+1 < len(op.items) {
			if one.pods, err = condition(op.items[i]); err != nil {
				return nil, err
			}
			result = op.items[i+1]
		}
		if one.result, err = set.parseRule(result); err != nil {
			return nil, err
		}
		b = append(b, one)
	}
	return b, nil
}

// condition returns the pods for which it is true; never nil.
func condition(n node) ([]string, error) {
	if n.kind != kindObject {
		return nil, wrong(n.place, "must be a condition, {\"==\": ...} or {\"in\": ...}, not %s", n.kind)
	}
	op, err := operator(n)
	if err != nil {
		return nil, err
	}
	if op.key != "==" && op.key != "in" {
		return nil, wrong(op.place, "is not supported in a condition: want == or in")
	}
	if op.kind != kindArray || len(op.items) != 2 {
		return nil, wrong(op.place, "must be an array of two")
	}
	left, right := op.items[0], op.items[1]
	if op.key == "==" {
		if left.kind == kindString { // the other way round is as good
			left, right = right, left
		}
		if err := podVariable(left); err != nil {
			return nil, err
		}
		pod, err := podName(right)
		return []string{pod}, err
	}
	if err := podVariable(left); err != nil {
		return nil, err
	}
	switch {
	case right.kind != kindArray: // "in" a string would look for a part of it
		return nil, wrong(right.place, "must be an array of pods, not %s", right.kind)
	case len(right.items) == 0:
		return nil, wrong(right.place, "is empty: name at least one pod, or drop the rule")
	}
	pods := make([]string, len(right.items))
	for i, item := range right.items {
		if pods[i], err = podName(item); err != nil {
			return nil, err
		}
		if slices.Contains(pods[:i], pods[i]) {
			return nil, wrong(item.place, "pod %s is in this list twice", quote(pods[i]))
		}
	}
	return pods, nil
}

// operator returns the one member of an operation.
func operator(n node) (member, error) {
	if len(n.members) != 1 {
		return member{}, wrong(n.place, "must have exactly one operator, not %d keys", len(n.members))
	}
	switch op := n.members[0]; op.key {
	case "if", "==", "in", "var":
		return op, nil
	default:
		return member{}, wrong(op.place, "operator %s is not supported: want if, == or in", quote(op.key))
	}
}

func podVariable(n node) error {
	if n.kind != kindObject {
		return wrong(n.place, "must be {\"var\": \"pod\"}, not %s", n.kind)
	}
	op, err := operator(n)
	if err != nil {
		return err
	}
	if name, ok := op.text(); op.key != "var" || !ok || name != "pod" {
		return wrong(op.place, "must be {\"var\": \"pod\"}: rules can look at nothing else")
	}
	return nil
}

func podName(n node) (string, error) {
	name, ok := n.text()
	switch {
	case !ok:
		return "", wrong(n.place, "must be the name of a pod, not %s", n.kind)
	case name == "":
		return "", wrong(n.place, "must be the name of a pod, not an empty text")
	}
	return name, nil
}
