package legacyredis

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"holdover"
)

const (
	instanceKeep = 24 * time.Hour // silent for longer: forgotten
	maxInstances = 1000
)

// instanceRecord is what an instance says of itself.
type instanceRecord struct {
	Name  string         `json:"name"`
	Epoch holdover.Epoch `json:"epoch"`
	Busy  int64          `json:"busy"`
	Debts int64          `json:"debts,omitempty"`
}

// Heartbeat records that the instance lives, which epoch it works with and how
// busy it is. Seen and Age are Redis's: those given are ignored.
func (s *Store) Heartbeat(ctx context.Context, i holdover.Instance) error {
	if i.ID == "" {
		return &holdover.InvalidError{Field: "instance id", Problem: "is missing"}
	}
	body, err := json.Marshal(instanceRecord{Name: i.Name, Epoch: i.Epoch, Busy: i.Busy, Debts: i.Debts})
	if err != nil {
		return fmt.Errorf("instance %s: %w", i.Name, err)
	}
	_, err = s.run(ctx, step{op: "heartbeat", script: s.scripts.heartbeat, writes: true, control: true}, i.ID, body, instanceKeep.Milliseconds())
	return err
}

// Instances lists who was heard of within maxAge, last seen first, at most
// 1,000.
func (s *Store) Instances(ctx context.Context, maxAge time.Duration) ([]holdover.Instance, error) {
	const op = "list instances"
	answer, err := s.run(ctx, step{op: op, script: s.scripts.instances, control: true}, maxAge.Milliseconds(), maxInstances)
	if err != nil {
		return nil, err
	}
	now := answer.number()
	list := answer.list()
	instances := make([]holdover.Instance, 0, len(list.values))
	for len(list.values) > 0 {
		one := list.list()
		id, seen, body := one.text(), one.number(), one.text()
		var record instanceRecord
		err := one.err
		if err == nil {
			err = json.Unmarshal([]byte(body), &record)
		}
		if err != nil {
			return nil, s.failure(op, holdover.Token{}, false, fmt.Errorf("the record of instance %q can't be read: %w", id, err))
		}
		instances = append(instances, holdover.Instance{
			Name: record.Name, ID: id, Epoch: record.Epoch, Busy: record.Busy, Debts: record.Debts,
			Seen: fromMillis(seen), Age: time.Duration(max(now-seen, 0)) * time.Millisecond,
		})
	}
	return instances, s.readable(op, holdover.Token{}, &answer, list.err)
}

// Forget removes an instance that ended in an orderly way, so that nobody waits
// for it.
func (s *Store) Forget(ctx context.Context, id string) error {
	_, err := s.run(ctx, step{op: "forget instance", script: s.scripts.forget, writes: true, control: true}, id)
	return err
}
