package bus

import busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"

// Damage drops a row from a reader's copy as a bug or a bit would: nobody is
// told, and the digest follows, since it says what is held.
func Damage(r *Reader, table busv1.Table, key string) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.put(Change{Table: table, Key: key})
}
