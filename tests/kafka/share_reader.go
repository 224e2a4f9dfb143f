// Command share_reader is a member of a share group by franz-go that prints each record that it gets: when,
// topic, partition, offset, delivery.
//
//	BOOTSTRAP GROUP TOPICS COUNT SECONDS
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	seconds, err := strconv.Atoi(os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]), kgo.ShareGroup(os.Args[2]),
		kgo.ConsumeTopics(strings.Split(os.Args[3], ",")...),
	)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer cancel()
	for read := 0; read < count && ctx.Err() == nil; {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			read++
			fmt.Println(time.Now().UnixMilli(), record.Topic, record.Partition, record.Offset, record.DeliveryCount())
		})
	}
	client.Close()
}
