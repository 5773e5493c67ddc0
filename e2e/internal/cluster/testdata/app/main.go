// Command app is the pod of the cluster's own tests: a server that says its
// name, or a client that prints what servers say.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: app serve ADDRESS | get URL… | write TEXT FILE…")
		os.Exit(64)
	}
	do := map[string]func([]string) error{"serve": serve, "get": get, "write": write}[os.Args[1]]
	if err := do(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	return http.ListenAndServe(args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _ := os.Hostname()
		fmt.Fprintf(w, "%s answers %s\n", host, r.RemoteAddr)
	}))
}

// get asks each URL until it answers, for a minute at most.
func get(urls []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, url := range urls {
		for {
			err := once(ctx, url)
			if err == nil {
				break
			}
			fmt.Fprintln(os.Stderr, err)
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s never answered: %w", url, err)
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	return nil
}

func once(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		fmt.Printf("%s: %s", url, body)
	}
	return err
}

func write(args []string) error {
	for _, file := range args[1:] {
		if err := os.WriteFile(file, []byte(args[0]), 0o755); err != nil {
			return err
		}
	}
	return nil
}
