package capture

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Longest is how much of a packet is kept, in bytes: all of it.
const Longest = 1 << 16

// rawIP is LINKTYPE_RAW: a packet begins with its IP header.
const rawIP = 101

// File writes packets as a pcap file, which tcpdump and Wireshark read
// (draft-ietf-opsawg-pcap).
type File struct{ w io.Writer }

// NewFile writes the file's head.
func NewFile(w io.Writer) (*File, error) {
	head := make([]byte, 24)
	binary.LittleEndian.PutUint32(head, 0xa1b2c3d4) // times in microseconds
	binary.LittleEndian.PutUint16(head[4:], 2)
	binary.LittleEndian.PutUint16(head[6:], 4)
	binary.LittleEndian.PutUint32(head[16:], Longest)
	binary.LittleEndian.PutUint32(head[20:], rawIP)
	if _, err := w.Write(head); err != nil {
		return nil, fmt.Errorf("writing the capture: %w", err)
	}
	return &File{w}, nil
}

// Write adds a packet, in one piece.
func (f *File) Write(at time.Time, packet []byte) error {
	packet = packet[:min(len(packet), Longest)]
	record := make([]byte, 16, 16+len(packet))
	binary.LittleEndian.PutUint32(record, uint32(at.Unix()))
	binary.LittleEndian.PutUint32(record[4:], uint32(at.Nanosecond()/1000))
	binary.LittleEndian.PutUint32(record[8:], uint32(len(packet)))
	binary.LittleEndian.PutUint32(record[12:], uint32(len(packet)))
	if _, err := f.w.Write(append(record, packet...)); err != nil {
		return fmt.Errorf("writing the capture: %w", err)
	}
	return nil
}
