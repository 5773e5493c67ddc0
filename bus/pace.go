package bus

import "time"

// Sending each change at once costs nothing while few come; above busyRate a
// message each costs readers more than the wait does (BUS.md section 3).
const (
	busyRate   = 500 // changes a second
	paceWindow = 100 * time.Millisecond
	paceWait   = 10 * time.Millisecond
)

// Pace tells the caller of Append how long to gather changes before the next
// append: not at all while fewer than about 500 a second come, 10 ms above. The
// zero value is ready. It is not for concurrent use.
type Pace struct {
	since time.Time
	count int
	busy  bool
}

// Count notes n changes at a time and gives how long to go on gathering before
// they are appended.
func (p *Pace) Count(now time.Time, n int) time.Duration {
	age := now.Sub(p.since)
	if age < 0 || age >= paceWindow {
		// Judge the window that has ended; a long pause means idle.
		p.busy = age < 2*paceWindow && p.over(age)
		p.since, p.count = now, 0
	}
	busy := p.busy || p.over(paceWindow)
	p.count += n
	if busy {
		return paceWait
	}
	return 0
}

func (p *Pace) over(d time.Duration) bool {
	return float64(p.count) > busyRate*d.Seconds()
}
