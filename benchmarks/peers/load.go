package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
)

// Calls under way in an open loop; a service that is this far behind is overloaded, and further calls fail.
const underWayMax = 4_096

type load struct {
	shape    shape
	service  *grpc.ClientConn
	subjects int
	held     int
	batch    int
	seed     uint64
}

// tally is what one caller saw.
type tally struct {
	checks, refused, failed int
	latency                 []time.Duration
	failure                 string
}

// ask makes one call and notes how long it took, from `begun` on.
func (l *load) ask(request []byte, begun time.Time, seen *tally) {
	limit, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	var answer []byte
	err := l.service.Invoke(limit, l.shape.method, request, &answer)
	took := time.Since(begun)
	var refused int
	if err == nil {
		refused, err = l.shape.read(answer, l.batch)
	}
	if err != nil {
		seen.failed += l.batch
		seen.failure = err.Error()
		return
	}
	seen.checks += l.batch
	seen.refused += refused
	seen.latency = append(seen.latency, took)
}

// closed keeps `callers` calls under way: the next begins when one ends.
func (l *load) closed(callers int, span time.Duration) report {
	begun := time.Now()
	end := begun.Add(span)
	tallies := l.together(callers, func(caller int, seen *tally) {
		order := rand.New(rand.NewPCG(l.seed, uint64(caller)))
		for now := time.Now(); now.Before(end); now = time.Now() {
			// Made before the clock starts: writing the request is not the service's time.
			request := l.request(order)
			l.ask(request, time.Now(), seen)
		}
	})
	return summary(tallies, time.Since(begun), nil)
}

// pass asks for every subject in turn, `times` times, so that the service knows them all.
func (l *load) pass(times, callers int) report {
	begun := time.Now()
	var next atomic.Int64
	tallies := l.together(callers, func(_ int, seen *tally) {
		for {
			first := int(next.Add(int64(l.batch))) - l.batch
			if first >= times*l.subjects {
				return
			}
			names := make([]int, l.batch)
			for i := range names {
				names[i] = (first + i) % l.subjects
			}
			l.ask(l.shape.write(names, l.held), time.Now(), seen)
		}
	})
	return summary(tallies, time.Since(begun), nil)
}

// open begins calls at fixed times, whether or not earlier ones have ended.
func (l *load) open(rate float64, span time.Duration) report {
	// A thread of its own: Go's timers are up to a millisecond late.
	runtime.LockOSThread()
	order := rand.New(rand.NewPCG(l.seed, 0))
	count := int(rate * span.Seconds())
	tallies := make([]tally, count)
	late := make([]time.Duration, count)
	free := make(chan struct{}, underWayMax)
	var wait sync.WaitGroup
	begun := time.Now()
	for i := range count {
		due := begun.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		request := l.request(order)
		sleepUntil(due)
		now := time.Now()
		late[i] = now.Sub(due)
		select {
		case free <- struct{}{}:
		default:
			tallies[i] = tally{failed: l.batch, failure: "too many calls under way"}
			continue
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			l.ask(request, now, &tallies[i])
			<-free
		}()
	}
	wait.Wait()
	return summary(tallies, time.Since(begun), late)
}

func (l *load) request(order *rand.Rand) []byte {
	names := make([]int, l.batch)
	for i := range names {
		names[i] = order.IntN(l.subjects)
	}
	return l.shape.write(names, l.held)
}

func (l *load) together(callers int, work func(caller int, seen *tally)) []tally {
	tallies := make([]tally, callers)
	var wait sync.WaitGroup
	for caller := range callers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			work(caller, &tallies[caller])
		}()
	}
	wait.Wait()
	return tallies
}

func sleepUntil(due time.Time) {
	for left := time.Until(due); left > 0; left = time.Until(due) {
		span := syscall.NsecToTimespec(left.Nanoseconds())
		// Interrupted: the loop sleeps for what is left.
		_ = syscall.Nanosleep(&span, nil)
	}
}

func summary(tallies []tally, took time.Duration, late []time.Duration) report {
	seen := report{Seconds: took.Seconds()}
	var latency []time.Duration
	for _, each := range tallies {
		seen.Checks += each.checks
		seen.Refused += each.refused
		seen.Failed += each.failed
		latency = append(latency, each.latency...)
		if seen.Failure == "" {
			seen.Failure = each.failure
		}
	}
	seen.LatencyUs, seen.LateUs = ranks(latency), ranks(late)
	return seen
}

// ranks gives evenly spaced order statistics in microseconds, the least and the greatest among them.
func ranks(samples []time.Duration) []float64 {
	slices.Sort(samples)
	found := []float64{}
	if len(samples) == 0 {
		return found
	}
	for i := range quantiles + 1 {
		at := (len(samples) - 1) * i / quantiles
		found = append(found, float64(samples[at].Nanoseconds())/1e3)
	}
	return found
}
