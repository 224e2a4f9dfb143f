// Command client does one thing as a client of franz-go, and prints what became of it:
//
//	PROPERTIES create NAME=PARTITIONS...
//	PROPERTIES produce TOPIC COUNT SIZE
//	PROPERTIES consume TOPIC GROUP COUNT
//
// PROPERTIES is a file of librdkafka's.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// told is what is printed: error codes, offsets, and the longest throttle.
type told struct {
	Codes      []int16 `json:"codes"`
	Offsets    []int64 `json:"offsets"`
	ThrottleMs int64   `json:"throttle_ms"`
	lock       sync.Mutex
}

// OnBrokerThrottle is told of each response that says how long to wait.
func (t *told) OnBrokerThrottle(_ kgo.BrokerMetadata, wait time.Duration, _ bool) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.ThrottleMs = max(t.ThrottleMs, wait.Milliseconds())
}

func main() {
	out := &told{Codes: []int16{}, Offsets: []int64{}}
	verb, words := os.Args[2], os.Args[3:]
	options := options(os.Args[1], out)
	if verb == "consume" {
		options = append(options, kgo.ConsumeTopics(words[0]), kgo.ConsumerGroup(words[1]),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch verb {
	case "create":
		create(ctx, client, out, words)
	case "produce":
		produce(ctx, client, out, words[0], number(words[1]), number(words[2]))
	case "consume":
		consume(ctx, client, out, number(words[2]))
	}
	client.Close()
	out.lock.Lock()
	check(json.NewEncoder(os.Stdout).Encode(out))
}

func options(path string, out *told) []kgo.Opt {
	text, err := os.ReadFile(path)
	check(err)
	properties := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, value, _ := strings.Cut(line, "=")
		properties[name] = value
	}
	authority, err := os.ReadFile(properties["ssl.ca.location"])
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	login := scram.Auth{User: properties["sasl.username"], Pass: properties["sasl.password"]}
	return []kgo.Opt{
		kgo.SeedBrokers(properties["bootstrap.servers"]), kgo.ClientID(properties["client.id"]),
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}), kgo.SASL(login.AsSha512Mechanism()),
		kgo.WithHooks(out), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
}

func create(ctx context.Context, client *kgo.Client, out *told, words []string) {
	request := kmsg.NewPtrCreateTopicsRequest()
	for _, word := range words {
		name, count, _ := strings.Cut(word, "=")
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(number(count)), 1
		request.Topics = append(request.Topics, topic)
	}
	answer, err := request.RequestWith(ctx, client)
	check(err)
	for _, topic := range answer.Topics {
		out.Codes = append(out.Codes, topic.ErrorCode)
	}
}

func produce(ctx context.Context, client *kgo.Client, out *told, topic string, count, size int) {
	var records []*kgo.Record
	for i := range count {
		records = append(records, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%0*d", size, i)})
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		var told *kerr.Error
		if result.Err != nil && !errors.As(result.Err, &told) {
			check(result.Err)
		}
		code := int16(0)
		if told != nil {
			code = told.Code
		}
		out.Codes = append(out.Codes, code)
	}
}

func consume(ctx context.Context, client *kgo.Client, out *told, count int) {
	for len(out.Offsets) < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		for _, record := range fetches.Records() {
			out.Offsets = append(out.Offsets, record.Offset)
		}
	}
}

func number(word string) int {
	found, err := strconv.Atoi(word)
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
