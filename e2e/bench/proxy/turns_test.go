package proxy

import (
	"slices"
	"testing"
	"time"
)

// takeTurns measures every subject for one round: the load, one right after the other,
// and then the latency. Every other round goes backwards.
func takeTurns(t *testing.T, r row, subjects []subject, backwards bool) {
	t.Helper()
	order := make([]int, 0, len(subjects))
	for i, s := range subjects {
		if s.missing == "" {
			order = append(order, i)
		}
	}
	if backwards {
		slices.Reverse(order)
	}
	for _, turn := range []func(*result, *testing.T, row, hop){(*result).loaded, (*result).timed} {
		for _, i := range order {
			turn(table[r][i], t, r, subjects[i].hops[r.entry()])
		}
	}
}

// loaded measures what requests cost. Before, a fifth of a turn goes by: it is steady
// work that is compared, and not how many connections to the application a proxy has
// kept since its last turn.
func (r *result) loaded(t *testing.T, kind row, to hop) {
	t.Helper()
	all := dialAll(t, kind, to)
	defer all.Close()
	closedLoop(t, all, *round/5)
	before := cpu(t, to.pids)
	requests, took := closedLoop(t, all, *round)
	used := cpu(t, to.pids) - before
	r.RSS = max(r.RSS, resident(t, to.pids))
	r.cpus = append(r.cpus, used.Seconds()*1e6/float64(requests))
	r.throughputs = append(r.throughputs, float64(requests)/took.Seconds())
}

// timed measures how long answers take.
func (r *result) timed(t *testing.T, kind row, to hop) {
	t.Helper()
	if *rate <= 0 {
		return
	}
	all := dialAll(t, kind, to)
	defer all.Close()
	r.late.add(calmly(t, func() []time.Duration { return openLoop(t, all, *rate, *round) }))
}

// conclude makes the values of a row out of its rounds, and the ratios.
func conclude(proxies []*result) {
	var best, base *result
	calm := true // every proxy that was measured has had calm turns
	for _, r := range proxies {
		calm = calm && (len(r.late.calm) > 0 || len(r.late.rough) == 0)
	}
	for _, r := range proxies {
		if r.Missing != "" {
			continue
		}
		r.CPU, r.Throughput = quantile(r.cpus, 0.5), quantile(r.throughputs, 0.5)
		if late := r.late.counted(calm); len(late) > 0 {
			r.P50, r.P99 = microseconds(quantile(late, 0.5)), microseconds(quantile(late, 0.99))
		}
		if r.Proxy != ours && r.Proxy != direct && (best == nil || r.CPU < best.CPU) {
			best = r
		}
		if r.Proxy == reference {
			base = r
		}
	}
	for _, r := range proxies {
		if r.Missing != "" {
			continue
		}
		if best != nil {
			r.ToBest = paired(r.cpus, best.cpus)
		}
		if base != nil {
			r.ToReference = paired(r.cpus, base.cpus)
		}
	}
}

// paired is what one costs relative to another: the median of the ratios of their turns
// in each round. A host that is slow for a while is so for both of a pair, where the
// medians of each may be of different whiles.
func paired(costs, others []float64) float64 {
	ratios := make([]float64, len(costs))
	for i := range costs {
		ratios[i] = costs[i] / others[i]
	}
	slices.Sort(ratios)
	return (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
}

func quantile[T float64 | time.Duration](of []T, q float64) T {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[int(q*float64(len(sorted)-1))]
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
