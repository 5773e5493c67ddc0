package message

import "testing"

// TestReleaseForgets: whatever was in a store's list, nothing of it is left: not what
// a longer list before it had, nor what came behind a line that was removed or has no
// name.
func TestReleaseForgets(t *testing.T) {
	s := NewStore()
	room := s.Fields()
	long := append(room, Field{Name: "a"}, Field{Value: "nameless"}, Field{Name: "b"}, Field{Name: "c"}, Field{Name: "d"}, Field{Name: "e"})
	s.Reuse(long)
	short := append(s.Fields(), Field{Name: "a"}, Field{Name: "b"})
	s.Reuse(short)
	short.Del("a")
	long.Add("f", "of our own")
	s.Release()
	for i, f := range room[:cap(room)] {
		if f != (Field{}) {
			t.Errorf("line %d is still %+v", i, f)
		}
	}
}
