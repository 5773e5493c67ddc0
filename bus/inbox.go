package bus

import "sync"

// The reader's own queue, between the transport's goroutine and Run. Beyond
// this the reader is better off with a snapshot (BUS.md section 3).
const (
	inboxBytes = 8 << 20
	// itemCost is what a queued message costs besides its body.
	itemCost = 256
)

type item struct {
	head head
	body []byte
}

// inbox is that queue, and the flags of what happened besides messages.
type inbox struct {
	mu    sync.Mutex
	items []item
	bytes int
	news  news
	ready chan struct{}
}

// news is what happened since the last look.
type news struct {
	connected, slow, overflow, woken bool
	malformed                        int
	// lost is the newest position among what an overflow dropped.
	lost position
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (in *inbox) push(it item) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(it.body) + itemCost
	if in.bytes+n > inboxBytes {
		for _, old := range in.items {
			if in.news.lost.before(old.head.position) {
				in.news.lost = old.head.position
			}
		}
		in.items, in.bytes = nil, 0
		in.news.overflow = true
	}
	in.items = append(in.items, it)
	in.bytes += n
	in.wake()
}

// note changes the flags.
func (in *inbox) note(change func(*news)) {
	in.mu.Lock()
	defer in.mu.Unlock()
	change(&in.news)
	in.wake()
}

func (in *inbox) wake() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

// take empties the inbox.
func (in *inbox) take() ([]item, news) {
	in.mu.Lock()
	defer in.mu.Unlock()
	items, n := in.items, in.news
	in.items, in.bytes, in.news = nil, 0, news{}
	return items, n
}
