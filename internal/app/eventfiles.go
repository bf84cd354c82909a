package app

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdover"
)

// spoolFolder is where, in the folder of the events, records wait for MySQL.
const spoolFolder = "spool"

// eventFiles are the files at paths: a folder stands for what instances wrote
// there, which may be nothing yet.
func eventFiles(paths []string) (files []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, &holdover.InvalidError{Field: "events", Value: path, Problem: "can't be read: " + err.Error()}
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		for _, folder := range []string{path, filepath.Join(path, spoolFolder)} {
			entries, err := os.ReadDir(folder)
			if err != nil && !os.IsNotExist(err) {
				return nil, fmt.Errorf("event files: %w", err)
			}
			for _, e := range entries {
				if isEventFile(e) {
					files = append(files, filepath.Join(folder, e.Name()))
				}
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func isEventFile(e fs.DirEntry) bool {
	name := e.Name()
	switch {
	case !e.Type().IsRegular(), strings.HasPrefix(name, "."):
		return false
	case strings.Contains(name, ".jsonl"):
		return !strings.HasSuffix(name, ".lock")
	}
	ext := filepath.Ext(name)
	return ext == ".json" || ext == ".open"
}
