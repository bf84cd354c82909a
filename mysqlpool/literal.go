package mysqlpool

import (
	"encoding/hex"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// add writes text, with each question mark replaced by its argument as a
// literal. Numbers, times, flags and tokens have one spelling that nothing can
// break out of; a text is written in hexadecimal unless it is a plain word. It
// costs no allocation for an argument, where the driver's own interpolation
// needs several: a batch has a thousand. A type that has no spelling here is a mistake
// of this package.
func (b *statement) add(text string, args ...any) *statement {
	for _, arg := range args {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			break
		}
		text = after
		b.literal(arg)
	}
	b.WriteString(text)
	return b
}

func (b *statement) literal(arg any) {
	var scratch [64]byte
	out := scratch[:0]
	switch v := arg.(type) {
	case int:
		out = strconv.AppendInt(out, int64(v), 10)
	case int64:
		out = strconv.AppendInt(out, v, 10)
	case uint64:
		out = strconv.AppendUint(out, v, 10)
	case bool:
		out = append(out, '0')
		if v {
			out[0] = '1'
		}
	case time.Time:
		out = append(out, '\'')
		out = v.UTC().AppendFormat(out, "2006-01-02 15:04:05.999999")
		out = append(out, '\'')
	case []byte:
		b.WriteString("x'")
		out = append(hex.AppendEncode(out, v), '\'')
	case string:
		if isWord(v) {
			out = append(append(append(out, '\''), v...), '\'')
			break
		}
		b.WriteString("_utf8mb4 x'")
		out = append(hex.AppendEncode(out, []byte(v)), '\'')
	case nil:
		out = append(out, "NULL"...)
	default: // not into an error value: an argument that could be kept would cost an allocation each
		panic("mysqlpool: no literal for a " + reflect.TypeOf(arg).String())
	}
	b.Write(out)
}

// isWord reports whether a text is a word of ASCII letters, digits and
// underscores, which needs no quoting.
func isWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
