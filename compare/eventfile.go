package compare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// maxNamesakes is how many processes of one instance name may write events in
// one folder.
const maxNamesakes = 16

// EventFile is the event file of one process: no other process writes to it.
// Close gives the name free.
type EventFile struct {
	Path string
	// Number is 1, or the process's place among those of the same instance name
	// in this folder.
	Number int

	lock *os.File
}

// ClaimEventFile finds a file for the events of an instance of a pod in a
// folder, which must exist: POD.INSTANCE.jsonl, or, while another process of the
// same name writes to that, POD.INSTANCE.2.jsonl and so on. It is held by a lock
// on POD.INSTANCE.lock beside it, which ends with the process. [ReadRollups] reads
// all of them.
func ClaimEventFile(folder, pod, instance string) (*EventFile, error) {
	for n := 1; n <= maxNamesakes; n++ {
		name := pod + "." + instance
		if n > 1 {
			name += "." + strconv.Itoa(n)
		}
		lock, err := os.OpenFile(filepath.Join(folder, name+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, fmt.Errorf("pod %s: the event file can't be claimed: %w", pod, err)
		}
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &EventFile{Path: filepath.Join(folder, name+".jsonl"), Number: n, lock: lock}, nil
		}
		_ = lock.Close() // nothing was written
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("pod %s: the event file can't be claimed: lock %s: %w", pod, name+".lock", err)
		}
	}
	return nil, fmt.Errorf("pod %s: %d processes called %s write events in %s already: give each an instance name of its own", pod, maxNamesakes, instance, folder)
}

// Close gives the file free for another process. The lock file stays: removing
// it would let two processes hold locks on two files of one name.
func (f *EventFile) Close() error { return f.lock.Close() }
