package load

import (
	"fmt"
	"runtime"
	"time"
)

// breath is how long a loop waits before it looks whether patience has ended.
const breath = 100 * time.Millisecond

// Closed asks on every connection as soon as the last answer is there, and returns
// how many were answered in which time.
func (c *Clients) Closed(d time.Duration) (answered int, took time.Duration, err error) {
	began := time.Now()
	answered, err = c.closed(max(c.to.Streams, 1), began.Add(d))
	return answered, time.Since(began), err
}

// closed keeps so many exchanges under way on each connection until it is time to
// end, and waits for the last answers.
func (c *Clients) closed(atOnce int, until time.Time) (answered int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	open := 0
	for _, one := range c.all {
		for range atOnce {
			one.out = one.ask(one.out)
		}
		one.open += atOnce
		open += atOnce
		if err := one.flush(c.poller); err != nil {
			return 0, err
		}
	}
	for open > 0 {
		now := time.Now()
		if now.Sub(until) > c.patient {
			return answered, fmt.Errorf("%d requests to %s are without an answer after %v", open, c.to.Target, c.patient)
		}
		err := c.turn(func(one *client, ended int) {
			answered += ended
			if !now.Before(until) {
				open -= ended
				return
			}
			one.open += ended
			for range ended {
				one.out = one.ask(one.out)
			}
		})
		if err != nil {
			return answered, err
		}
	}
	return answered, nil
}

// Open asks at a fixed rate a second, whatever the answers do, each connection in
// its turn, and returns how long after its appointed time each answer was there.
func (c *Clients) Open(rate int, d time.Duration) ([]time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	total := max(int(d.Seconds()*float64(rate)), 1)
	late := make([]time.Duration, 0, total)
	began := time.Now()
	due := func(i int) time.Duration { return time.Duration(i) * time.Second / time.Duration(rate) }
	asked, armed := 0, -1
	for len(late) < total {
		since := time.Since(began)
		if since-d > c.patient {
			return nil, fmt.Errorf("%d of %d requests to %s are without an answer after %v", total-len(late), total, c.to.Target, c.patient)
		}
		for ; asked < total && due(asked) <= since; asked++ {
			one := c.all[asked%len(c.all)]
			one.due = append(one.due, due(asked))
			if err := c.askNext(one); err != nil {
				return nil, err
			}
		}
		if asked < total && armed != asked {
			armed = asked
			if err := c.alarm.set(due(asked) - time.Since(began)); err != nil {
				return nil, err
			}
		}
		var failed error
		err := c.turn(func(one *client, ended int) {
			for range ended {
				late = append(late, time.Since(began)-one.due[0])
				one.due = one.due[1:]
				if err := c.askNext(one); err != nil {
					failed = err
				}
			}
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return nil, err
		}
	}
	return late, nil
}

// askNext asks if something is due and nothing under way.
func (c *Clients) askNext(one *client) error {
	if one.open > 0 || len(one.due) == 0 {
		return nil
	}
	one.open++
	one.out = one.ask(one.out)
	return one.flush(c.poller)
}
