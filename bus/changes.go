package bus

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	busv1 "github.com/weftmesh/weft/proto/gen/weft/bus/v1"
)

// Batches and chunks are the bulk of the bus and both are lists of changes in
// field 1, so they are read and written here without a message per row: the
// generated code costs three allocations and about 100 bytes more for each.
// A test holds the two against each other.
const (
	fieldChanges  = 1 // Batch.changes, Chunk.rows
	fieldObserved = 2 // Batch.observed_at_ns
	fieldUnknown  = 2 // Chunk.unknown

	fieldTable   = 1
	fieldKey     = 2
	fieldValue   = 3
	fieldRemoved = 4
)

// MaxRow bounds one row, so that a batch of one row fits a message.
const MaxRow = 512 << 10

// changeSize is the size of one change in a batch.
func changeSize(c Change) int {
	n := innerSize(c)
	return protowire.SizeTag(fieldChanges) + protowire.SizeBytes(n)
}

func innerSize(c Change) int {
	n := protowire.SizeTag(fieldTable) + protowire.SizeVarint(uint64(c.Table)) +
		protowire.SizeTag(fieldKey) + protowire.SizeBytes(len(c.Key))
	if c.Value == nil {
		n += protowire.SizeTag(fieldRemoved) + 1
	} else if len(c.Value) > 0 {
		n += protowire.SizeTag(fieldValue) + protowire.SizeBytes(len(c.Value))
	}
	return n
}

func appendChange(b []byte, c Change) []byte {
	b = protowire.AppendTag(b, fieldChanges, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(innerSize(c)))
	b = protowire.AppendTag(b, fieldTable, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(c.Table))
	b = protowire.AppendTag(b, fieldKey, protowire.BytesType)
	b = protowire.AppendString(b, c.Key)
	if c.Value == nil {
		b = protowire.AppendTag(b, fieldRemoved, protowire.VarintType)
		b = protowire.AppendVarint(b, 1)
	} else if len(c.Value) > 0 {
		b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
		b = protowire.AppendBytes(b, c.Value)
	}
	return b
}

// encodeBatch writes a Batch.
func encodeBatch(changes []Change, observedNS int64) []byte {
	n := 16
	for _, c := range changes {
		n += changeSize(c)
	}
	b := make([]byte, 0, n)
	for _, c := range changes {
		b = appendChange(b, c)
	}
	if observedNS != 0 {
		b = protowire.AppendTag(b, fieldObserved, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(observedNS))
	}
	return b
}

// decodeChanges reads a Batch or a Chunk: its changes and the value of its
// field 2. The changes own their memory.
func decodeChanges(raw []byte) (changes []Change, second uint64, err error) {
	second, err = eachChange(raw, func(p parsed) {
		c := Change{Table: p.table, Key: string(p.key)}
		if !p.removed {
			c.Value = append(make([]byte, 0, len(p.value)), p.value...)
		}
		changes = append(changes, c)
	})
	if err != nil {
		return nil, 0, err
	}
	return changes, second, nil
}

// eachChange is decodeChanges for who makes something else of the changes.
func eachChange(raw []byte, take func(parsed)) (second uint64, err error) {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return 0, fmt.Errorf("%w: %w", errBody, protowire.ParseError(n))
		}
		raw = raw[n:]
		switch {
		case num == fieldChanges && typ == protowire.BytesType:
			inner, n := protowire.ConsumeBytes(raw)
			if n < 0 {
				return 0, fmt.Errorf("%w: %w", errBody, protowire.ParseError(n))
			}
			raw = raw[n:]
			p, err := parseChange(inner)
			if err != nil {
				return 0, err
			}
			take(p)
		case num == fieldObserved && typ == protowire.VarintType:
			second, n = protowire.ConsumeVarint(raw)
			if n < 0 {
				return 0, fmt.Errorf("%w: %w", errBody, protowire.ParseError(n))
			}
			raw = raw[n:]
		default:
			if raw, err = skip(num, typ, raw); err != nil {
				return 0, err
			}
		}
	}
	return second, nil
}

// parsed is a change whose bytes are those of the body that it came in.
type parsed struct {
	table      busv1.Table
	key, value []byte
	removed    bool
}

func parseChange(b []byte) (p parsed, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return p, fmt.Errorf("%w: %w", errBody, protowire.ParseError(n))
		}
		b = b[n:]
		switch {
		case (num == fieldTable || num == fieldRemoved) && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return p, fmt.Errorf("%w: %w", errBody, protowire.ParseError(n))
			}
			b = b[n:]
			if num == fieldTable {
				p.table = busv1.Table(int32(v))
			} else {
				p.removed = v != 0
			}
		case (num == fieldKey || num == fieldValue) && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return p, fmt.Errorf("%w: %w", errBody, protowire.ParseError(n))
			}
			b = b[n:]
			if num == fieldKey {
				p.key = v
			} else {
				p.value = v
			}
		default:
			if b, err = skip(num, typ, b); err != nil {
				return p, err
			}
		}
	}
	if p.table <= 0 {
		return p, fmt.Errorf("%w: table %d", errBody, p.table)
	}
	return p, nil
}

func skip(num protowire.Number, typ protowire.Type, b []byte) ([]byte, error) {
	n := protowire.ConsumeFieldValue(num, typ, b)
	if n < 0 {
		return nil, fmt.Errorf("%w: %w", errBody, protowire.ParseError(n))
	}
	return b[n:], nil
}
