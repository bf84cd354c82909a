package compare

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds a line of an event file, and a file of the spool; the largest,
// a rollup with all its samples, is well below 2 MB.
const maxLine = 64 << 20

// Source is an event file to read. The name is for messages.
type Source struct {
	Name string
	R    io.Reader
}

// readLine returns the next line; with io.EOF the rest, which has no newline.
func readLine(in *bufio.Reader) ([]byte, error) {
	var b []byte
	for {
		part, err := in.ReadSlice('\n')
		b = append(b, part...)
		if len(b) > maxLine {
			return nil, fmt.Errorf("the line is longer than %d bytes", maxLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return b, err
		}
	}
}

// decodeLine reads one line, and holds it to what it must have.
func decodeLine(b []byte) (l line, err error) {
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("not an event line: %w", err)
	}
	if l.V != lineVersion {
		return l, fmt.Errorf("an event line of version %d, this program reads version %d", l.V, lineVersion)
	}
	switch {
	case l.Rollup != nil:
		return l, l.Rollup.check()
	case l.Event == nil:
		return l, errors.New("neither an event nor a rollup")
	case l.Event.Run == "" || l.Event.Kind == KindNone:
		return l, errors.New("an event without its run or kind")
	}
	return l, nil
}
