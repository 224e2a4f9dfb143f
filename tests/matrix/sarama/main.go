// Command client is tests/secure/client.go with Sarama:
//
//	PROPERTIES create NAME=PARTITIONS...
//	PROPERTIES produce TOPIC COUNT SIZE
//	PROPERTIES consume TOPIC GROUP COUNT
//
// PROPERTIES is a file of librdkafka's.
package main

import (
	"context"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/rcrowley/go-metrics"
	"github.com/xdg-go/scram"
)

const limit = time.Minute

// told is what is printed: error codes, offsets, and the longest throttle.
type told struct {
	Codes      []int16 `json:"codes"`
	Offsets    []int64 `json:"offsets"`
	ThrottleMs int64   `json:"throttle_ms"`
}

func main() {
	out := &told{Codes: []int16{}, Offsets: []int64{}}
	config, bootstrap := settings(os.Args[1])
	client, err := sarama.NewClient(strings.Split(bootstrap, ","), config)
	check(err)
	verb, words := os.Args[2], os.Args[3:]
	switch verb {
	case "create":
		create(client, out, words)
	case "produce":
		produce(client, out, words[0], number(words[1]), number(words[2]))
	case "consume":
		consume(client, out, words[0], words[1], number(words[2]))
	}
	config.MetricRegistry.Each(func(name string, metric any) {
		if histogram, is := metric.(metrics.Histogram); is && strings.HasPrefix(name, "throttle-time-in-ms") {
			out.ThrottleMs = max(out.ThrottleMs, histogram.Max())
		}
	})
	check(json.NewEncoder(os.Stdout).Encode(out))
}

func settings(path string) (*sarama.Config, string) {
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
	config := sarama.NewConfig()
	config.ClientID = properties["client.id"]
	config.Version = sarama.MaxVersion
	config.Net.ReadTimeout = limit
	config.Net.TLS.Enable, config.Net.TLS.Config = true, &tls.Config{RootCAs: trusted}
	config.Net.SASL.Enable, config.Net.SASL.Mechanism = true, sarama.SASLTypeSCRAMSHA512
	config.Net.SASL.User, config.Net.SASL.Password = properties["sasl.username"], properties["sasl.password"]
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &login{} }
	config.Producer.Return.Successes = true
	config.Producer.Timeout = limit
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config, properties["bootstrap.servers"]
}

func create(client sarama.Client, out *told, words []string) {
	topics := map[string]*sarama.TopicDetail{}
	for _, word := range words {
		name, count, _ := strings.Cut(word, "=")
		topics[name] = &sarama.TopicDetail{NumPartitions: int32(number(count)), ReplicationFactor: 1}
	}
	controller, err := client.Controller()
	check(err)
	answer, err := controller.CreateTopics(
		sarama.NewCreateTopicsRequest(client.Config().Version, topics, limit, false))
	check(err)
	for _, topic := range answer.TopicErrors {
		out.Codes = append(out.Codes, int16(topic.Err))
	}
}

func produce(client sarama.Client, out *told, topic string, count, size int) {
	producer, err := sarama.NewAsyncProducerFromClient(client)
	check(err)
	go func() {
		for i := range count {
			value := sarama.StringEncoder(fmt.Sprintf("%0*d", size, i))
			producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: value}
		}
	}()
	for range count {
		select {
		case <-producer.Successes():
			out.Codes = append(out.Codes, 0)
		case failed := <-producer.Errors():
			var code sarama.KError
			if !errors.As(failed.Err, &code) {
				check(failed.Err)
			}
			out.Codes = append(out.Codes, int16(code))
		}
	}
	check(producer.Close())
}

func consume(client sarama.Client, out *told, topic, group string, count int) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	members, err := sarama.NewConsumerGroupFromClient(group, client)
	check(err)
	// It comes back when the group is rebalanced.
	for len(out.Offsets) < count && ctx.Err() == nil {
		check(members.Consume(ctx, []string{topic}, &reader{out, count}))
	}
	check(members.Close())
}

// reader takes so many records of one partition.
type reader struct {
	out   *told
	count int
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for len(r.out.Offsets) < r.count {
		select {
		case record := <-claim.Messages():
			r.out.Offsets = append(r.out.Offsets, record.Offset)
			session.MarkMessage(record, "")
		case <-session.Context().Done():
			return nil
		}
	}
	return nil
}

// login is SCRAM-SHA-512, which Sarama leaves to its users.
type login struct {
	conversation *scram.ClientConversation
}

func (l *login) Begin(user, password, authorization string) error {
	made, err := scram.HashGeneratorFcn(func() hash.Hash { return sha512.New() }).
		NewClient(user, password, authorization)
	if err == nil {
		l.conversation = made.NewConversation()
	}
	return err
}

func (l *login) Step(challenge string) (string, error) { return l.conversation.Step(challenge) }
func (l *login) Done() bool                            { return l.conversation.Done() }

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
