package plant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holdover"
	"holdover/compare"
)

// planting makes one kind happen, in a stage that compares.
type planting struct {
	kind  compare.Kind
	item  int64 // whose stock it needs; 0: none's
	plant func(p *Planter, ctx context.Context, at holdover.Fence) error
}

var plantings = [...]planting{
	{compare.KindMatch, itemPlenty, (*Planter).match},
	{compare.KindLastUnitRace, itemLast, (*Planter).lastUnit},
	{compare.KindLocation, itemOther, (*Planter).location},
	{compare.KindPoolShort, itemPlenty, (*Planter).poolShort},
	{compare.KindExpirySkew, itemPlenty, (*Planter).expirySkew},
	{compare.KindPreShadow, itemOther, (*Planter).preShadow},
	{compare.KindStraddledFlip, 0, (*Planter).straddledFlip},
	{compare.KindMirrorLost, itemOther, (*Planter).mirrorLost},
	{compare.KindNotComparable, itemPlenty, (*Planter).notComparable},
	{compare.KindForeignWrite, itemForeign, (*Planter).foreignWrite},
	{compare.KindUnexplained, itemNone, (*Planter).tooMany},
	{compare.KindUnexplained, itemOne, (*Planter).tooFew},
}

// holdTime is how long a hold lives that could not be released.
const holdTime = 30 * time.Second

func (p *Planter) request(token holdover.Token, which int64, ttl time.Duration) holdover.Request {
	return holdover.Request{
		Shop: p.cfg.Shop, Token: token, TTL: ttl,
		Lines: []holdover.Line{{Item: p.item(which), Group: 1, Quantity: 1}},
	}
}

// reserve asks for one unit. A refusal is an answer like another.
func (p *Planter) reserve(ctx context.Context, token holdover.Token, which int64) error {
	_, err := p.cfg.Facade.Reserve(ctx, p.request(token, which, holdTime))
	if errors.Is(err, holdover.ErrOutOfStock) {
		return nil
	}
	return err
}

// follow begins a plant's token; end releases its hold and lets go of it.
func (p *Planter) follow() (token holdover.Token, g *grip) {
	token = holdover.NewToken()
	return token, p.cfg.Hand.follow(token)
}

func (p *Planter) end(ctx context.Context, token holdover.Token, g *grip) {
	defer p.cfg.Hand.drop(token)
	p.cfg.Hand.set(g, "", nil)
	p.cfg.Hand.age(g, time.Time{})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdTime/10)
	defer cancel()
	if _, err := p.cfg.Facade.Release(ctx, p.cfg.Shop, token); err == nil {
		_ = wait(ctx, g, holdover.OpRelease) // a second one changes nothing, and is not observed
	}
}

// errNotSeen: the comparator was never given what was planted.
var errNotSeen = errors.New("the planted call was not observed in time")

// wait waits for an observation of the operation.
func wait(ctx context.Context, g *grip, op holdover.Op) error {
	for {
		select {
		case seen := <-g.seen:
			if seen == op {
				return nil
			}
		case <-ctx.Done():
			return errNotSeen
		}
	}
}

// expect makes a call whose observation is to be of the kind, and waits for it.
func (p *Planter) expect(ctx context.Context, token holdover.Token, g *grip, kind compare.Kind, op holdover.Op, call func() error) error {
	p.announce(token, kind)
	err := call()
	if err == nil {
		err = p.seen(ctx, token, g, op)
	} else {
		p.cfg.Comparator.Late(token)
	}
	return err
}

// announce tells the comparator what is to be seen of the token.
func (p *Planter) announce(token holdover.Token, kind compare.Kind) {
	if p.current == nil { // not a plant of its own: Meet
		p.cfg.Comparator.Expect(token, kind)
		return
	}
	p.current.Expect(token, kind)
}

// seen waits for the observation. One that did not come in time can't be judged.
func (p *Planter) seen(ctx context.Context, token holdover.Token, g *grip, op holdover.Op) error {
	err := wait(ctx, g, op)
	if err != nil {
		p.cfg.Comparator.Late(token)
	}
	return err
}

// meet reserves an item under a new token; its observation is to be of the kind.
func (p *Planter) meet(ctx context.Context, kind compare.Kind, which int64, step string, do trick) error {
	token, g := p.follow()
	defer p.end(ctx, token, g)
	p.cfg.Hand.set(g, step, do)
	return p.expect(ctx, token, g, kind, holdover.OpReserve, func() error { return p.reserve(ctx, token, which) })
}

func (p *Planter) match(ctx context.Context, _ holdover.Fence) error {
	return p.meet(ctx, compare.KindMatch, itemPlenty, "", nil)
}

func (p *Planter) location(ctx context.Context, _ holdover.Fence) error {
	return p.meet(ctx, compare.KindLocation, itemOther, "", nil)
}

// grantStep is where MySQL is asked for a grant.
func grantStep(stage holdover.Stage) string {
	if stage == holdover.StageShadow {
		return mysqlApply
	}
	return mysqlVote
}

func (p *Planter) poolShort(ctx context.Context, at holdover.Fence) error {
	var first sync.Once // in shadow the debt is carried over for good; elsewhere a vote may be asked for again
	return p.meet(ctx, compare.KindPoolShort, itemPlenty, grantStep(at.Stage), func(ctx context.Context, do func(context.Context) error) error {
		refuse := at.Stage != holdover.StageShadow
		first.Do(func() { refuse = true })
		if !refuse {
			return do(ctx)
		}
		return &holdover.OutOfStockError{Store: holdover.StoreMySQL, Shop: p.cfg.Shop,
			Short: []holdover.Shortage{{Item: p.item(itemPlenty), Group: 1, Want: 1}}}
	})
}

// fail is a store that certainly did nothing.
func (p *Planter) fail(context.Context, func(context.Context) error) error {
	return &holdover.StoreError{Store: holdover.StoreMySQL, Pod: p.cfg.Pod, Op: "plant", Err: errors.New("planted: it was not asked")}
}

func (p *Planter) notComparable(ctx context.Context, at holdover.Fence) error {
	err := p.meet(ctx, compare.KindNotComparable, itemPlenty, grantStep(at.Stage), p.fail)
	if holdover.NoAnswer(err) && at.Stage != holdover.StageShadow {
		return nil
	}
	return err
}

// lastUnit: one buyer's last unit, or its return, has come to one store and not
// to the other while another buyer asks.
func (p *Planter) lastUnit(ctx context.Context, at holdover.Fence) error {
	x, gx := p.follow()
	defer p.end(ctx, x, gx)
	y, gy := p.follow()
	defer p.end(ctx, y, gy)
	for x[15]%2 == y[15]%2 { // another lane, for any even number of them
		p.cfg.Hand.drop(y)
		y, gy = p.follow()
	}
	arrived, gate := make(chan struct{}), make(chan struct{})
	var once, opened sync.Once
	open := func() { opened.Do(func() { close(gate) }) }
	hold := func(ctx context.Context, do func(context.Context) error) error {
		once.Do(func() { close(arrived) })
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return do(ctx)
	}
	first := make(chan error, 1)
	defer func() { open(); <-first }()
	if at.Stage == holdover.StageMySQL {
		if err := p.reserve(ctx, x, itemLast); err != nil {
			first <- nil
			return err
		}
		if err := wait(ctx, gx, holdover.OpReserve); err != nil {
			first <- nil
			return err
		}
		p.cfg.Hand.set(gx, mysqlApply, hold)
		go func() {
			_, err := p.cfg.Facade.Release(ctx, p.cfg.Shop, x)
			first <- err
		}()
	} else {
		p.cfg.Hand.set(gx, grantStep(at.Stage), hold)
		go func() { first <- p.reserve(ctx, x, itemLast) }()
	}
	select {
	case <-arrived:
	case <-ctx.Done():
		return fmt.Errorf("the first buyer did not come to mysql: %w", ctx.Err())
	}
	heard, stop := p.cfg.Hand.probed(look{p.item(itemLast), at.Stage == holdover.StageMySQL})
	defer stop()
	return p.expect(ctx, y, gy, compare.KindLastUnitRace, holdover.OpReserve, func() error {
		if err := p.reserve(ctx, y, itemLast); err != nil {
			return err
		}
		select {
		case <-heard:
		case <-ctx.Done():
		}
		open()
		return nil
	})
}

func (p *Planter) expirySkew(ctx context.Context, _ holdover.Fence) error {
	token, g := p.follow()
	defer p.end(ctx, token, g)
	if _, err := p.cfg.Facade.Reserve(ctx, p.request(token, itemPlenty, p.cfg.ShortLife)); err != nil {
		return err
	}
	if err := wait(ctx, g, holdover.OpReserve); err != nil {
		return err
	}
	begun := make(chan struct{})
	var once sync.Once
	p.cfg.Hand.set(g, mysqlApply, func(ctx context.Context, do func(context.Context) error) error {
		h, err := p.cfg.MySQL.Lookup(ctx, token)
		if err == nil && h.State == holdover.StateHeld {
			once.Do(func() { // it was in time: Redis has ended it
				p.announce(token, compare.KindExpirySkew)
				close(begun)
			})
			// A moment early, so that no reaper of MySQL's comes first and asks Redis.
			pause(ctx, time.Until(h.ExpiresAt)-50*time.Millisecond)
			h.State = holdover.StateExpired
			_, err = p.cfg.MySQL.Apply(ctx, h)
			pause(ctx, time.Until(h.ExpiresAt)+10*time.Millisecond)
		}
		return errors.Join(err, do(ctx))
	})
	released := make(chan error, 1)
	go func() {
		_, err := p.cfg.Facade.Release(ctx, p.cfg.Shop, token)
		released <- err
	}()
	var err error
	select {
	case <-begun:
		return errors.Join(p.seen(ctx, token, g, holdover.OpRelease), <-released)
	case err = <-released:
	}
	if err == nil { // in shadow its mirror work may still come
		select {
		case <-begun:
			return p.seen(ctx, token, g, holdover.OpRelease)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return fmt.Errorf("the hold ended before its release came to mysql: %w", err)
}

func (p *Planter) preShadow(ctx context.Context, at holdover.Fence) error {
	if at.Stage == holdover.StageMySQL {
		return p.observed(ctx, compare.KindPreShadow, at, holdover.EvidencePreShadow, holdover.Proof{GrantedAt: at.At.Add(-time.Hour), DualSince: at.At})
	}
	token, g := p.follow()
	defer p.end(ctx, token, g)
	if err := p.reserve(ctx, token, itemOther); err != nil {
		return err
	}
	if err := wait(ctx, g, holdover.OpReserve); err != nil {
		return err
	}
	p.cfg.Hand.age(g, time.Unix(1, 0))
	return p.expect(ctx, token, g, compare.KindPreShadow, holdover.OpReserve, func() error { return p.reserve(ctx, token, itemOther) })
}

func (p *Planter) mirrorLost(ctx context.Context, at holdover.Fence) error {
	if at.Stage != holdover.StageShadow {
		return p.observed(ctx, compare.KindMirrorLost, at, holdover.EvidenceMirrorLost, holdover.Proof{Cause: "planted"})
	}
	token, g := p.follow()
	defer p.end(ctx, token, g)
	p.cfg.Hand.set(g, mysqlApply, p.fail)
	if err := p.reserve(ctx, token, itemOther); err != nil {
		return err
	}
	if err := wait(ctx, g, holdover.OpReserve); err != nil {
		return err
	}
	p.cfg.Hand.set(g, "", nil)
	return p.expect(ctx, token, g, compare.KindMirrorLost, holdover.OpReserve, func() error { return p.reserve(ctx, token, itemOther) })
}

func (p *Planter) straddledFlip(ctx context.Context, at holdover.Fence) error {
	return p.observed(ctx, compare.KindStraddledFlip, at, holdover.EvidenceEpochMoved, holdover.Proof{EpochBegan: at.Epoch, EpochEnded: at.Epoch + 1})
}

// observed plants at the observation: nothing happens in the stores.
func (p *Planter) observed(_ context.Context, kind compare.Kind, at holdover.Fence, e holdover.Evidence, proof holdover.Proof) error {
	token := holdover.NewToken()
	q := p.request(token, itemPlenty, holdTime)
	p.announce(token, kind)
	p.cfg.Comparator.Observe(holdover.Observation{
		Pod: p.cfg.Pod, Instance: p.cfg.Instance, Epoch: at.Epoch, Stage: at.Stage, Op: holdover.OpReserve,
		Shop: q.Shop, Token: token, Lines: q.Lines, At: time.Now(),
		Redis:    holdover.Answer{Outcome: holdover.OutcomeGranted, State: holdover.StateHeld},
		MySQL:    holdover.Answer{Outcome: holdover.OutcomeRefused},
		Evidence: []holdover.Evidence{e}, Proof: &proof, Reason: "planted at the observation",
	})
	p.cfg.Comparator.Missed(token)
	return nil
}

func (p *Planter) foreignWrite(ctx context.Context, _ holdover.Fence) (err error) {
	item, units := p.item(itemForeign), stockOf[itemForeign][0]
	if err := p.load(ctx, map[int64]int64{item: units - 1}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.load(context.WithoutCancel(ctx), map[int64]int64{item: units})) }()
	v, err := compare.Verify(ctx, shopRedis{p.cfg.Redis}, shopMySQL{p.cfg.MySQL, p.cfg.Shop, []int64{item}}, compare.VerifyConfig{
		Pod: p.cfg.Pod, Recheck: 20 * time.Millisecond, Rounds: 2, PagesPerSecond: -1,
	})
	if err != nil {
		return err
	}
	p.current.Verified(v)
	return nil
}

// tooMany: Redis's counter has units that are not there.
func (p *Planter) tooMany(ctx context.Context, _ holdover.Fence) error {
	return p.changed(ctx, itemNone, 2)
}

// tooFew: it lacks one that is.
func (p *Planter) tooFew(ctx context.Context, _ holdover.Fence) error {
	return p.changed(ctx, itemOne, -1)
}

func (p *Planter) changed(ctx context.Context, which, by int64) (err error) {
	item, units := p.item(which), stockOf[which][0]
	if err := p.load(ctx, map[int64]int64{item: units + by}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.load(context.WithoutCancel(ctx), map[int64]int64{item: units})) }()
	return p.meet(ctx, compare.KindUnexplained, which, "", nil)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
