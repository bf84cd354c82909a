package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeBlock = regexp.MustCompile("(?s)\n```\n(.*?)\n```\n")
	inline    = regexp.MustCompile("`(holdover [^`]*)`")
	word      = regexp.MustCompile(`"[^"]*"|\S+`)
)

// TestRunbooks: every command in the runbooks is one that the program takes.
func TestRunbooks(t *testing.T) {
	files, err := filepath.Glob("../../deploy/runbooks/*.md")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		text := readText(t, file)
		var commands []string
		for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
			commands = append(commands, strings.Split(block[1], "\n")...)
		}
		for _, found := range inline.FindAllStringSubmatch(text, -1) {
			commands = append(commands, found[1])
		}
		seen := 0
		for _, command := range commands {
			rest, is := strings.CutPrefix(command, "holdover ")
			if !is {
				continue
			}
			seen++
			var args []string
			for _, w := range word.FindAllString(rest, -1) {
				args = append(args, strings.Trim(w, `"`))
			}
			var c cli
			parser, err := newParser(&c, io.Discard, io.Discard, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(args); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(file), command, err)
			}
		}
		if seen < 5 {
			t.Errorf("%s: only %d commands were found", filepath.Base(file), seen)
		}
	}
}
