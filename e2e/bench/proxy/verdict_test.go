package proxy

import "fmt"

// verdict is what became of a budget.
type verdict struct {
	What     string  `json:"what"`
	Unit     string  `json:"unit"` // or relative to whom
	Measured float64 `json:"measured"`
	Budget   float64 `json:"budget"`
	Stretch  float64 `json:"stretch,omitempty"`
	Kept     bool    `json:"kept"`
}

var verdicts []verdict

func decide(v verdict) {
	v.Kept = v.Measured <= v.Budget
	verdicts = append(verdicts, v)
}

// want is a budget of a row and its stretch: how much processor time weft-proxy may
// take, relative to a peer in the same run.
type want struct {
	peer            string
	budget, stretch float64
}

var wants = map[row][]want{
	{1, 128, 0}: {{"nginx", 1, 0.85}},
	{2, 128, 0}: {{"haproxy", 0.95, 0.75}, {reference, 0.2, 0}},
	{2, 16, 0}:  {{"haproxy", 1.1, 0.9}},
	{2, 8, 16}:  {{"haproxy", 0.9, 0.66}, {reference, 0.13, 0}},
}

// timely is the row of which the added latency has budgets too: at a fixed rate, the
// number of connections means little.
var timely = row{2, 16, 0}

// judge compares a row with what is wanted.
func judge(r row, proxies []*result) {
	of := map[string]*result{}
	for _, p := range proxies {
		if p.Missing == "" {
			of[p.Proxy] = p
		}
	}
	for _, w := range wants[r] {
		if of[w.peer] != nil {
			decide(verdict{"processor time: " + r.String(), "of " + w.peer, paired(of[ours].cpus, of[w.peer].cpus), w.budget, w.stretch, false})
		}
	}
	if r != timely || *rate <= 0 {
		return
	}
	decide(verdict{fmt.Sprintf("added p99 at %d/s: %s", *rate, r), "ms", (of[ours].P99 - of[direct].P99) / 1000, 1, 0, false})
	haproxy := of["haproxy"]
	if haproxy == nil {
		return
	}
	for _, q := range []struct {
		name            string
		ours, its, bare float64
	}{{"p50", of[ours].P50, haproxy.P50, of[direct].P50}, {"p99", of[ours].P99, haproxy.P99, of[direct].P99}} {
		// Where a neighbour's noise hides what haproxy adds, there is nothing to compare with.
		if its := q.its - q.bare; its > 0 {
			decide(verdict{fmt.Sprintf("added %s at %d/s: %s", q.name, *rate, r), "of haproxy", (q.ours - q.bare) / its, 1.2, 1, false})
		}
	}
}

// printVerdicts names what is over its budget once more, so that nobody overlooks it.
func printVerdicts() {
	if len(verdicts) == 0 {
		return
	}
	fmt.Printf("\n%-70s %-12s %8s %8s %8s\n", "weft-proxy", "", "measured", "budget", "stretch")
	over := 0
	for _, v := range verdicts {
		word := "kept"
		switch {
		case !v.Kept:
			word, over = "OVER", over+1
		case v.Stretch > 0 && v.Measured <= v.Stretch:
			word = "kept, stretch too"
		}
		stretch := "-"
		if v.Stretch > 0 {
			stretch = fmt.Sprintf("%.2f", v.Stretch)
		}
		fmt.Printf("  %-68s %-12s %8.2f %8.2f %8s  %s\n", v.What, v.Unit, v.Measured, v.Budget, stretch, word)
	}
	fmt.Printf("\n%d of %d budgets are kept", len(verdicts)-over, len(verdicts))
	for _, v := range verdicts {
		if !v.Kept {
			fmt.Printf("\n  OVER: %s: %.2f %s, budget %.2f", v.What, v.Measured, v.Unit, v.Budget)
		}
	}
	fmt.Println()
}
