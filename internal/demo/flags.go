package demo

import (
	"encoding/json"
	"os"
	"path/filepath"

	"holdover"
)

func (s *story) flagFile() string { return filepath.Join(s.dir, "stages.json") }

// want writes what the pod should be in into the flag file.
func (s *story) want(pod string, stage holdover.Stage) error {
	s.desired[pod] = stage
	return s.writeFlags()
}

// writeFlags writes the whole file beside the old one and renames it.
func (s *story) writeFlags() error {
	variants := map[string]string{}
	for _, stage := range holdover.Stages() {
		variants[stage.String()] = stage.String()
	}
	var rules []any
	for _, p := range podStories {
		rules = append(rules, map[string]any{"==": []any{map[string]any{"var": "pod"}, p.name}}, s.desired[p.name].String())
	}
	rules = append(rules, nil)
	text, err := json.MarshalIndent(map[string]any{"flags": map[string]any{"holdover-stage": map[string]any{
		"state": "ENABLED", "variants": variants, "defaultVariant": "redis", "targeting": map[string]any{"if": rules},
	}}}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.flagFile()+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(s.flagFile()+".new", s.flagFile())
}
