package main

import (
	"io"
	"testing"
)

// TestKillIsParsedAlone: the process of a kill does not put the grammar of all
// commands together first, and understands the same words.
func TestKillIsParsedAlone(t *testing.T) {
	work := func(grammar func() any) float64 {
		return testing.AllocsPerRun(1, func() {
			if _, err := newParser(grammar(), io.Discard, io.Discard, func(int) {}); err != nil {
				t.Fatal(err)
			}
		})
	}
	all := work(func() any { return new(cli) })
	for _, args := range [][]string{
		{"kill", "--pod", "a,b", "--by", "ada", "--reason", "errors", "--dry-run", "--json", "--config", "x.yaml", "--log-level", "info"},
		{"restore", "--all", "--reason", "mended"},
	} {
		if alone := work(func() any { return grammar(args) }); alone > all/4 {
			t.Errorf("%s: %.0f allocations to parse it, %.0f for all commands", args[0], alone, all)
		}
		for _, g := range []any{grammar(args), new(cli)} {
			parser, err := newParser(g, io.Discard, io.Discard, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(args); err != nil {
				t.Errorf("%v: %v", args, err)
			}
		}
	}
}
