package state

// Remembered counts what the state's indexes hold.
func Remembered(s *State) int {
	return len(s.known) + len(s.rows) + len(s.children) + len(s.slices) + len(s.skipped) + len(s.derived) + len(s.stale) + len(s.orphans)
}
