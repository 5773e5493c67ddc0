package bus

import "time"

// Hasten makes a keeper look, write and write again at once.
func (k *Keeper) Hasten() {
	k.every, k.pause, k.space = 20*time.Millisecond, time.Millisecond, time.Millisecond
}
