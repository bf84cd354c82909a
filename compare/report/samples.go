package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"holdover"
	"holdover/compare"
)

// facts are what makes a sample what it is, in a few lines: what each store
// answered, the proof, and what to do. Everything else of it is in the JSON.
func (r Report) facts(e compare.Event) (lines [][2]string) {
	add := func(name, text string) {
		if text != "" {
			lines = append(lines, [2]string{name, text})
		}
	}
	add("said", fmt.Sprintf("redis %s; mysql %s", answered(e.Redis), answered(e.MySQL)))
	add("because", e.Why)
	if e.Proof != nil {
		add("cause", e.Proof.Cause)
		add("proof", strings.Join(proved(*e.Proof), "; "))
	}
	if n := len(e.Trace); n > 0 {
		add("around it", fmt.Sprintf("%s of its token or items", counted(n, "operation")))
	}
	add("next", r.next(e))
	return lines
}

// answered is one store's answer, with what it had left and why it gave none.
func answered(s compare.Side) string {
	text := says(s)
	if len(s.Remaining) > 0 {
		text += ", left " + strings.Trim(fmt.Sprint(s.Remaining), "[]")
	}
	if s.Err != "" {
		text += ": " + s.Err
	}
	return text
}

// proved is what was recorded with a difference.
func proved(p holdover.Proof) (parts []string) {
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	at := func(t time.Time) string { return t.UTC().Format("15:04:05.000Z") }
	if p.EpochEnded != 0 {
		say("epoch %d when it began, %d when it ended", p.EpochBegan, p.EpochEnded)
	}
	if !p.GrantedAt.IsZero() || !p.DualSince.IsZero() {
		say("granted %s, dual writing since %s", stamp(p.GrantedAt), stamp(p.DualSince))
	}
	if !p.RedisExpires.IsZero() || !p.MySQLExpires.IsZero() {
		say("expires %s in redis and %s in mysql, answered %s", at(p.RedisExpires), at(p.MySQLExpires), at(p.AnsweredAt))
	}
	const most = 3 // a cart may have hundreds of lines
	for i, s := range p.Sides {
		if i == most {
			say("%d more items", len(p.Sides)-most)
			break
		}
		free := []string{}
		for _, m := range s.MySQL {
			free = append(free, fmt.Sprintf("%d at group %d", m.Free(), m.Group))
		}
		text := fmt.Sprintf("item %d: redis %d, mysql %s free", s.Item, s.Redis, strings.Join(free, ", "))
		if len(free) == 0 {
			text = fmt.Sprintf("item %d: redis %d, mysql has no row", s.Item, s.Redis)
		}
		if s.Owed > 0 {
			text += fmt.Sprintf(", %d owed", s.Owed)
		}
		parts = append(parts, text)
	}
	if p.Overlapping > 0 {
		say("%s under way on these items", counted(int(p.Overlapping), "operation"))
	}
	return parts
}

// next is what to do about a sample, as far as the rest of the report shows that
// it was done.
func (r Report) next(e compare.Event) string {
	if e.Kind != compare.KindMirrorLost && e.Kind != compare.KindUnexplained {
		return e.Next
	}
	i := slices.IndexFunc(r.Verification, func(v Verification) bool { return v.Pod == e.Pod && v.Clean && v.At.After(e.At) })
	if i < 0 {
		return e.Next
	}
	since := fmt.Sprintf("both stores were compared completely at %s, later, and nothing differs", stamp(r.Verification[i].At))
	if e.Kind == compare.KindMirrorLost {
		return "Nothing in the stores: " + since + ". Mend the cause."
	}
	return e.Next + " Now " + since + "."
}
