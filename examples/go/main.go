// Sends orders with RocketMQ's own Go client, and consumes those that are paid.
//
// NAMESRV_ADDR names another server than that of `maxq standalone`.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	topic  = "ExampleGoOrders"
	orders = 10
	wait   = 60 * time.Second
)

func main() {
	rlog.SetLogLevel("error")
	nameServer := os.Getenv("NAMESRV_ADDR")
	if nameServer == "" {
		nameServer = "127.0.0.1:9876"
	}
	resolver := primitive.NewPassthroughResolver([]string{nameServer})
	if err := send(resolver); err != nil {
		log.Fatal(err)
	}
	if err := consume(resolver); err != nil {
		log.Fatal(err)
	}
}

// Every second order is paid.
func send(resolver primitive.NsResolver) error {
	p, err := rocketmq.NewProducer(producer.WithNsResolver(resolver), producer.WithGroupName("example-go-shop"))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	stored := 0
	for number := 0; number < orders; number++ {
		tag := "open"
		if number%2 == 0 {
			tag = "paid"
		}
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("order %d", number)))
		message.WithTag(tag).WithKeys([]string{fmt.Sprintf("order-%d", number)})
		result, err := p.SendSync(context.Background(), message)
		if err != nil {
			return err
		}
		if result.Status == primitive.SendOK {
			stored++
		}
	}
	fmt.Println("sent", stored, "orders")
	return nil
}

// The broker selects by tag: orders with the tag "open" do not come here.
func consume(resolver primitive.NsResolver) error {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver),
		consumer.WithGroupName("example-go-packers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	paid := map[string]*primitive.MessageExt{}
	done := make(chan struct{})
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		before := len(paid)
		for _, message := range messages {
			paid[string(message.Body)] = message
		}
		if before < orders/2 && len(paid) >= orders/2 {
			close(done)
		}
		return consumer.ConsumeSuccess, nil
	}
	onlyPaid := consumer.MessageSelector{Type: consumer.TAG, Expression: "paid"}
	if err := c.Subscribe(topic, onlyPaid, handle); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Shutdown()
	select {
	case <-done:
	case <-time.After(wait):
	}
	mutex.Lock()
	defer mutex.Unlock()
	if len(paid) < orders/2 {
		return fmt.Errorf("within %s only %d orders", wait, len(paid))
	}
	bodies := make([]string, 0, len(paid))
	for body := range paid {
		bodies = append(bodies, body)
	}
	sort.Strings(bodies)
	for _, body := range bodies {
		fmt.Printf("%s, tag %s, key %s\n", body, paid[body].GetTags(), paid[body].GetKeys())
	}
	return nil
}
