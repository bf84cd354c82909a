package compare

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// disk is what a spool asks of a file system, each by a path.
type disk interface {
	Create(path string) (diskFile, error)
	Rename(from, to string) error
	Remove(path string) error
	ReadFile(path string) ([]byte, error)
	ReadDir(path string) ([]fs.DirEntry, error) // sorted by name
	Stat(path string) (fs.FileInfo, error)
}

type diskFile interface {
	io.WriteCloser
	Sync() error
}

// osDisk is the operating system's.
type osDisk struct{}

func (osDisk) Create(path string) (diskFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err // not a nil *os.File in an interface
	}
	return f, nil
}
func (osDisk) Rename(from, to string) error               { return os.Rename(from, to) }
func (osDisk) Remove(path string) error                   { return os.Remove(path) }
func (osDisk) ReadFile(path string) ([]byte, error)       { return os.ReadFile(path) }
func (osDisk) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(path) }
func (osDisk) Stat(path string) (fs.FileInfo, error)      { return os.Stat(path) }

// passing reports whether the system could not do it now and may later: what was to
// be read may be whole. A disk that says it can't read a block is none of these.
func passing(err error) bool {
	var system syscall.Errno
	return errors.As(err, &system) && system != syscall.EIO && system != syscall.ENOENT && system != syscall.EISDIR
}
