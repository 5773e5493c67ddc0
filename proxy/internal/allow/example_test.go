package allow_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/weftmesh/weft/proxy/internal/allow"
)

func ExampleDefault() {
	policy := allow.Default("all-authenticated", nil, 10*time.Second, false)
	client := allow.Client{Addr: netip.MustParseAddr("10.1.2.3")}
	fmt.Println(policy.TCP(client).Allowed)

	client.TLS, client.ID = allow.Terminated, "web.shop.serviceaccount.identity.linkerd.cluster.local"
	fmt.Println(policy.TCP(client).Allowed)
	// Output:
	// false
	// true
}
