// Command peers is the load client of benchmarks/checks.py: it asks a rate limit service over gRPC and prints
// what it saw as one JSON object.
//
// Messages are written and read by hand (wire.go), so that no peer's own code is in the client and its part of
// the two cores stays small.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	callLimit = 5 * time.Second
	quantiles = 10_000
)

type report struct {
	Checks    int       `json:"checks"`
	Refused   int       `json:"refused"`
	Failed    int       `json:"failed"`
	Seconds   float64   `json:"seconds"`
	LatencyUs []float64 `json:"latency_us"` // 10,001 order statistics of the calls, from the least to the greatest
	LateUs    []float64 `json:"late_us"`    // how late the client itself sent, the same way; open loop only
	Failure   string    `json:"failure"`    // the first one
}

func main() {
	api := flag.String("api", "", "gubernator or ratelimit")
	address := flag.String("address", "", "HOST:PORT of the service")
	subjects := flag.Int("subjects", 100_000, "different subjects")
	held := flag.Int("held", 10, "one in so many subjects has a limit of one, so that all but its first check are refused")
	batch := flag.Int("batch", 1, "checks a call")
	callers := flag.Int("callers", 16, "calls under way at once (closed loop)")
	rate := flag.Float64("rate", 0, "calls a second (open loop); 0: closed loop")
	seconds := flag.Float64("seconds", 1, "how long to ask, seconds")
	passes := flag.Int("passes", 0, "instead: ask once for every subject, so many times")
	seed := flag.Uint64("seed", 1, "of the order of subjects")
	flag.Parse()

	shape, known := shapes[*api]
	if !known || *batch < 1 || *callers < 1 || *held < 1 || *subjects < *batch {
		fail(fmt.Errorf("bad usage; see -help"))
	}
	service, err := dial(*address)
	if err != nil {
		fail(err)
	}
	load := &load{shape: shape, service: service, subjects: *subjects, held: *held, batch: *batch, seed: *seed}
	span := time.Duration(*seconds * float64(time.Second))
	var seen report
	switch {
	case *passes > 0:
		seen = load.pass(*passes, *callers)
	case *rate > 0:
		seen = load.open(*rate, span)
	default:
		seen = load.closed(*callers, span)
	}
	if err := json.NewEncoder(os.Stdout).Encode(seen); err != nil {
		fail(err)
	}
}

// dial opens the connection and waits until it is ready: peers answer most with one.
func dial(address string) (*grpc.ClientConn, error) {
	limit, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	service, err := grpc.NewClient(
		"passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return nil, err
	}
	service.Connect()
	for state := service.GetState(); state.String() != "READY"; state = service.GetState() {
		if !service.WaitForStateChange(limit, state) {
			return nil, fmt.Errorf("no connection to %s within %s", address, callLimit)
		}
	}
	return service, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peers:", err)
	os.Exit(1)
}
