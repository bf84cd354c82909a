package legacyredis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"holdover"
)

// encodeLines writes lines as "item:group:quantity,...", the text both stores
// and every check of equality use.
func encodeLines(lines []holdover.Line) string {
	var b strings.Builder
	for i, l := range lines {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d:%d:%d", l.Item, l.Group, l.Quantity)
	}
	return b.String()
}

func decodeLines(text string) ([]holdover.Line, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	lines := make([]holdover.Line, len(parts))
	for i, part := range parts {
		fields := strings.Split(part, ":")
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %q is not item:group:quantity", part)
		}
		for k, to := range []*int64{&lines[i].Item, &lines[i].Group, &lines[i].Quantity} {
			n, err := strconv.ParseInt(fields[k], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", part, err)
			}
			*to = n
		}
	}
	return lines, nil
}

// checkLines refuses what a script could not add up exactly.
func checkLines(shop int64, lines []holdover.Line) error {
	if shop <= 0 {
		return &holdover.InvalidError{Field: "shop_id", Value: strconv.FormatInt(shop, 10), Problem: "must be a positive number"}
	}
	if len(lines) == 0 {
		return &holdover.InvalidError{Field: "lines", Problem: "must have at least one line"}
	}
	total := make(map[int64]int64, len(lines))
	for _, l := range lines {
		if l.Item <= 0 || l.Group <= 0 || l.Quantity <= 0 || l.Quantity > maxNumber {
			return &holdover.InvalidError{Field: "lines", Value: encodeLines([]holdover.Line{l}), Problem: "must have positive ids and a quantity from 1 to 2^53"}
		}
		total[l.Item] += l.Quantity // at most 2^54 before the check
		if total[l.Item] > maxNumber {
			return &holdover.InvalidError{Field: "lines", Value: strconv.FormatInt(l.Item, 10), Problem: "ask for more than 2^53 units of this item"}
		}
	}
	return nil
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func attemptText(a holdover.Attempt) string { return strconv.FormatUint(uint64(a), 16) }

func epochText(e holdover.Epoch) string { return strconv.FormatUint(uint64(e), 10) }

// hold reads what answer() of the prelude wrote.
func (r *reply) hold() (holdover.Hold, error) {
	l := r.list()
	token, tokenErr := holdover.ParseToken(l.text())
	state, stateErr := holdover.ParseState(l.text())
	h := holdover.Hold{Token: token, State: state, Shop: l.number()}
	lines, linesErr := decodeLines(l.text())
	h.Lines = lines
	h.ExpiresAt = fromMillis(l.number())
	h.GrantedAt = fromMillis(l.number())
	attempt, attemptErr := strconv.ParseUint(l.text(), 16, 64)
	h.Attempt = holdover.Attempt(attempt)
	h.Firm = l.text() == "1" && state != holdover.StateNone
	claimed, claimedErr := decodeLines(l.text())
	h.Claimed = claimed
	return h, errors.Join(r.err, l.err, tokenErr, stateErr, linesErr, attemptErr, claimedErr)
}

func (r *reply) holds() ([]holdover.Hold, error) {
	l := r.list()
	holds := make([]holdover.Hold, 0, len(l.values))
	for len(l.values) > 0 {
		h, err := l.hold()
		if err != nil {
			return nil, err
		}
		holds = append(holds, h)
	}
	return holds, errors.Join(r.err, l.err)
}

// fence reads what read_fence() of the prelude wrote.
func (r *reply) fence() (holdover.Fence, error) {
	f := holdover.Fence{Pod: r.text()}
	epoch, epochErr := strconv.ParseUint(r.text(), 10, 64)
	f.Epoch = holdover.Epoch(epoch)
	stage, stageErr := holdover.ParseStage(r.text())
	f.Stage = stage
	f.Latched = r.text() == "1"
	f.By, f.Reason = r.text(), r.text()
	f.At = fromMillis(r.number())
	if err := errors.Join(r.err, epochErr, stageErr); err != nil {
		return holdover.Fence{}, fmt.Errorf("the fence in redis can't be read: %w", err)
	}
	return f, nil
}

// packFact writes a fact as one argument of the kill's script.
func packFact(h holdover.Hold) string {
	return strings.Join([]string{
		h.Token.String(), strconv.FormatInt(h.Shop, 10), encodeLines(h.Lines), h.State.String(),
		strconv.FormatInt(millis(h.ExpiresAt), 10), strconv.FormatInt(millis(h.GrantedAt), 10), attemptText(h.Attempt), encodeLines(h.Claimed),
	}, "|")
}
