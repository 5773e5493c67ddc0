package mesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weftmesh/weft/e2e/internal/caseset"
	"github.com/weftmesh/weft/e2e/internal/proc"
)

const books = "http://books.shop.svc.cluster.local:8080/"

// meshedHouse is a client's proxy, a meshed books, and everything they need.
// Each test has its own third octet, so that tests can't meet.
func meshedHouse(t *testing.T, octet int) (h *house, client, server string) {
	t.Helper()
	client, server = fmt.Sprintf("127.3.%d.1", octet), fmt.Sprintf("127.3.%d.2", octet)
	h = newHouse(t, namespaceShop, serviceOf("books", "10.96.1.1", 8080))
	h.startPolicy()
	h.startIdentity("client", "books")
	h.write("client.yaml", podOf("client-1", "client", client, 8080, true))
	h.write("books-1.yaml", podOf("books-1", "books", server, 8080, true))
	app(t, server+":8080")
	h.proxyFor("client-1", "client", client)
	h.proxyFor("books-1", "books", server)
	proc.Eventually(t, "books answers through both proxies", func() error {
		_, err := get(t.Context(), through(client), books)
		return err
	})
	return h, client, server
}

func TestRequestCarriesMutualTLSIdentity(t *testing.T) {
	_, client, server := meshedHouse(t, 1)
	body, err := get(t.Context(), through(client), books)
	if err != nil {
		t.Fatal(err)
	}
	want := server + ":8080 client.shop.serviceaccount.identity.linkerd.cluster.local"
	if body != want {
		t.Errorf("books saw %q, want %q", body, want)
	}
}

func TestEndpointChangeReachesProxy(t *testing.T) {
	h, client, server := meshedHouse(t, 2)
	second := "127.3.2.3"
	app(t, second+":8080")
	h.proxyFor("books-2", "books", second)
	h.write("books-2.yaml", podOf("books-2", "books", second, 8080, true))
	proc.Eventually(t, "the second pod gets requests", func() error { return hits(t, client, second) })

	stop := traffic(t, through(client), books)
	h.remove("books-1.yaml")
	quiet := 0
	proc.Eventually(t, "the first pod gets none", func() error {
		if hits(t, client, server) == nil {
			quiet = 0
			return errors.New("it still does")
		}
		if quiet++; quiet < 20 {
			return errors.New("not for long enough")
		}
		return nil
	})
	if good, err := stop(); err != nil {
		t.Errorf("after %d good requests: %v", good, err)
	}
}

// hits sends one request and is nil if the wanted address answered.
func hits(t *testing.T, client, want string) error {
	t.Helper()
	body, err := get(t.Context(), through(client), books)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(body, want+":") {
		return fmt.Errorf("answered by %s", body)
	}
	return nil
}

func TestKilledDestinationCostsNoRequest(t *testing.T) {
	h, client, _ := meshedHouse(t, 3)
	stop := traffic(t, through(client), books)
	h.destination.Kill()
	// Longer than the proxy keeps an unused discovery; in use it must stay.
	<-time.After(6 * time.Second)
	h.startDestination()
	second := "127.3.3.3"
	app(t, second+":8080")
	h.proxyFor("books-2", "books", second)
	h.write("books-2.yaml", podOf("books-2", "books", second, 8080, true))
	proc.Eventually(t, "the proxy follows the new destination", func() error { return hits(t, client, second) })
	good, err := stop()
	if err != nil {
		t.Errorf("after %d good requests: %v", good, err)
	}
	// One every 2 ms; a machine that is fifty times slower is still good enough.
	if good < 50 {
		t.Errorf("only %d requests were sent; the test proves too little", good)
	}
}

func TestPolicyDeniesAndAllowsAgain(t *testing.T) {
	h, client, _ := meshedHouse(t, 4)
	h.write("deny.yaml", `{apiVersion: policy.linkerd.io/v1beta3, kind: Server, metadata: {name: books-http, namespace: shop},
  spec: {podSelector: {matchLabels: {app: books}}, port: http, proxyProtocol: HTTP/1}}`)
	proc.Eventually(t, "the client is denied", func() error {
		_, err := get(t.Context(), through(client), books)
		if err == nil {
			return errors.New("allowed")
		}
		if !strings.HasPrefix(err.Error(), "403") {
			return err
		}
		return nil
	})
	h.write("allow.yaml", `{apiVersion: policy.linkerd.io/v1alpha1, kind: AuthorizationPolicy, metadata: {name: clients, namespace: shop},
  spec: {targetRef: {group: policy.linkerd.io, kind: Server, name: books-http},
    requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: MeshTLSAuthentication, name: clients}]}}`,
		`{apiVersion: policy.linkerd.io/v1alpha1, kind: MeshTLSAuthentication, metadata: {name: clients, namespace: shop},
  spec: {identities: ["client.shop.serviceaccount.identity.linkerd.cluster.local"]}}`)
	proc.Eventually(t, "the client is allowed", func() error {
		_, err := get(t.Context(), through(client), books)
		return err
	})
}

// endpoints is what a destination answers for books at this moment.
func (h *house) endpoints(ctx context.Context) (string, error) {
	conn, err := grpc.NewClient(h.destinationAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := destination.NewDestinationClient(conn).Get(ctx, &destination.GetDestination{Path: "books.shop.svc.cluster.local:8080"})
	if err != nil {
		return "", err
	}
	update, err := stream.Recv()
	if err != nil {
		return "", err
	}
	state := caseset.Fold(caseset.State{}, []caseset.Message{caseset.Update(update)})
	return strings.Join(caseset.Addresses(state), " "), nil
}

func (h *house) wantEndpoints(what, want string) {
	h.t.Helper()
	proc.Eventually(h.t, what, func() error {
		got, err := h.endpoints(h.t.Context())
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("endpoints are %q, want %q", got, want)
		}
		return nil
	})
}

// profile asks for a service's profile; an error when destination knows no such service.
func (h *house) profile(path string) error {
	conn, err := grpc.NewClient(h.destinationAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(h.t.Context(), 5*time.Second)
	defer cancel()
	stream, err := destination.NewDestinationClient(conn).GetProfile(ctx, &destination.GetDestination{Path: path})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}
