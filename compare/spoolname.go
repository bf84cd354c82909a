package compare

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// The ends of the names of a spool's files, POD.INSTANCE.RUN-SEQ and one of
// these.
const (
	openEnd   = ".open"         // the open period, rewritten at each flush
	closedEnd = ".json"         // waits to be sent
	badEnd    = ".bad"          // can't be read, or is refused for good
	lockEnd   = ".lock"         // POD.INSTANCE.RUN.lock: locked while the run lives
	newEnd    = ".writing"      // half of a file
	whyEnd    = badEnd + ".why" // beside a bad one
)

// maxNamePart bounds the pod's and the instance's part of a file name; both and
// the rest fit into the 255 bytes of a file system.
const maxNamePart = 80

// spoolPrefix is what the names of an instance's files begin with. No other pod
// and instance have the same.
func spoolPrefix(pod, instance string) string {
	return escapeName(pod) + "." + escapeName(instance) + "."
}

// escapeName keeps letters, digits, - and _; a name that gets too long ends in its
// hash.
func escapeName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= maxNamePart {
		return b.String()
	}
	sum := sha256.Sum256([]byte(name))
	return b.String()[:maxNamePart-18] + "~" + hex.EncodeToString(sum[:8])
}

// spoolName is the name of a rollup's file without its end. Names of an instance
// sort by run, which sort by their start, and by number.
func spoolName(prefix, run string, seq uint64) string {
	return fmt.Sprintf("%s%s-%012d", prefix, run, seq)
}

// parseSpoolName takes a name apart, or reports that it is none of this instance.
func parseSpoolName(prefix, name, end string) (run string, seq uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", 0, false
	}
	if rest, ok = strings.CutSuffix(rest, end); !ok {
		return "", 0, false
	}
	run, digits, ok := strings.Cut(rest, "-")
	seq, err := strconv.ParseUint(digits, 10, 64)
	return run, seq, ok && err == nil && run != "" && !strings.Contains(run, ".")
}
