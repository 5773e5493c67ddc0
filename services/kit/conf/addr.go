package conf

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Addr is an address to listen on: host:port, or :port for every interface.
// As the type of a setting it is judged with all the others, before a process
// opens anything.
type Addr string

// UnmarshalText refuses what nobody could listen on.
func (a *Addr) UnmarshalText(text []byte) error {
	host, port, err := net.SplitHostPort(string(text))
	if err != nil {
		return fmt.Errorf("%q is no address to listen on; write it like 127.0.0.1:8086 or :8086", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("the port of %q is not a number up to 65535", text)
	}
	if strings.ContainsAny(host, " /\t\n") {
		return fmt.Errorf("the host of %q is no name and no IP address", text)
	}
	*a = Addr(text)
	return nil
}

// MarshalText is the address as it was written.
func (a Addr) MarshalText() ([]byte, error) { return []byte(a), nil }

// String is the address as it was written.
func (a Addr) String() string { return string(a) }
