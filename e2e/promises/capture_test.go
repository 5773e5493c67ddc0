package promises

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// captureWord makes the test's binary the program that captures packets until its
// input ends, and then writes what it has seen.
const captureWord = "capture-packets"

// sight is what a capture saw of TCP on a node: between its pods, and between them
// and other nodes.
type sight struct {
	Packets int `json:"packets"`
	// TLS counts segments that begin with a TLS record.
	TLS int `json:"tls"`
	// Marked counts packets that hold the word of the load, Control those that
	// hold the word of a request that is sent in the clear.
	Marked  int `json:"marked"`
	Control int `json:"control"`
}

// controlWord is asked for without a proxy, so that the capture is known to see
// plaintext where there is some.
const controlWord = "gooseberry"

// capture reads every packet of its network namespace.
func capture(word string) error {
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return fmt.Errorf("opening a packet socket: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	over := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(over)
	}()
	var s sight
	buf := make([]byte, 1<<17) // offloading makes packets larger than any link's
	for {
		select {
		case <-over:
			return json.NewEncoder(os.Stdout).Encode(s)
		default:
		}
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading packets: %w", err)
		}
		s.add(buf[:n], word)
	}
}

// add judges one IPv4 packet. What stays on the node's loopback is no pod's: etcd
// keeps there the objects that name the word.
func (s *sight) add(packet []byte, word string) {
	if len(packet) < 20 || packet[0]>>4 != 4 || packet[9] != unix.IPPROTO_TCP || packet[12] == 127 {
		return
	}
	segment := packet[min(len(packet), int(packet[0]&15)*4):]
	if len(segment) < 20 {
		return
	}
	data := segment[min(len(segment), int(segment[12]>>4)*4):]
	if len(data) == 0 {
		return
	}
	s.Packets++
	if len(data) > 2 && data[0] >= 20 && data[0] <= 23 && data[1] == 3 {
		s.TLS++
	}
	if bytes.Contains(data, []byte(word)) {
		s.Marked++
	}
	if bytes.Contains(data, []byte(controlWord)) {
		s.Control++
	}
}

// listen captures on a node while the load runs.
func listen(t *testing.T, b *bed) {
	t.Helper()
	if b.own == nil {
		t.Skip("packets can be captured only on a cluster that is started here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	web := b.pods(t, "shop", "app=web")[0]
	cmd := b.own.Node(web.node).InNetwork(t.Context(), self, captureWord, marker)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pass(t, 5*time.Second)
	// From the machine to the application, which takes requests from anybody.
	resp, err := http.Get("http://" + web.ip + ":8080/?what=" + controlWord)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	pass(t, time.Second)
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("capturing: %v: %s", err, said.Bytes())
	}
	var s sight
	if err := json.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	t.Logf("node %s: %d packets with data, %d begin a TLS record, %d hold the load's word in the clear, %d the word that was sent so",
		web.node, s.Packets, s.TLS, s.Marked, s.Control)
	switch {
	case s.Control == 0:
		t.Error("the capture does not see what is in the clear, so it proves nothing")
	case s.TLS == 0:
		t.Error("no packet begins a TLS record")
	case s.Marked > 0:
		t.Errorf("%d packets hold the load's word in the clear", s.Marked)
	}
}
