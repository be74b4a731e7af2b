package main

import (
	"sort"
	"sync"
	"time"
)

// latencies gathers how long things took, from several goroutines.
type latencies struct {
	guard sync.Mutex
	times []time.Duration
}

func (l *latencies) add(times []time.Duration) {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.times = append(l.times, times...)
}

// percentiles returns the usual ones, in microseconds.
func (l *latencies) percentiles() map[string]float64 {
	sort.Slice(l.times, func(a, b int) bool { return l.times[a] < l.times[b] })
	result := map[string]float64{}
	if len(l.times) == 0 {
		return result
	}
	for name, share := range map[string]float64{
		"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "worst_us": 1,
	} {
		at := int(share * float64(len(l.times)-1))
		result[name] = float64(l.times[at].Nanoseconds()) / 1000
	}
	return result
}
