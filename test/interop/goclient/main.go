// Goclient sends or consumes with Apache's Go client. It takes the options and
// prints the lines of the Java program in ../java. Exit codes: 0 done, 1
// failed, 2 wrong usage, 3 time is up.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type options struct {
	namesrv, topic, group, tags, tag, instance string
	count, batch, expect, timeout              int
	stay                                       bool
}

var errTime = errors.New("time is up")

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: goclient produce|consume --namesrv ADDR --topic NAME …")
		os.Exit(2)
	}
	var o options
	flags := flag.NewFlagSet("goclient", flag.ExitOnError)
	flags.StringVar(&o.namesrv, "namesrv", "", "")
	flags.StringVar(&o.topic, "topic", "", "")
	flags.StringVar(&o.group, "group", "interop-"+os.Args[1], "")
	flags.StringVar(&o.tags, "tags", "", "")
	flags.StringVar(&o.tag, "tag", "*", "")
	flags.StringVar(&o.instance, "instance", strconv.Itoa(os.Getpid()), "")
	flags.IntVar(&o.count, "count", 1, "")
	flags.IntVar(&o.batch, "batch", 1, "")
	flags.IntVar(&o.expect, "expect", 1<<30, "")
	flags.IntVar(&o.timeout, "timeout", 60, "seconds")
	flags.BoolVar(&o.stay, "stay", false, "")
	_ = flags.Parse(os.Args[2:])
	rlog.SetLogLevel("error")
	var err error
	switch os.Args[1] {
	case "produce":
		err = produce(o)
	case "consume":
		err = consume(o)
	default:
		err = fmt.Errorf("unknown command %s", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, errTime) {
			os.Exit(3)
		}
		os.Exit(1)
	}
}

func produce(o options) (err error) {
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{o.namesrv}), producer.WithGroupName(o.group),
		producer.WithInstanceName(o.instance), producer.WithRetry(2))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Shutdown()) }()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	tags := strings.Split(o.tags, ",")
	for n := 0; n < o.count; n += o.batch {
		var batch []*primitive.Message
		for i := n; i < min(n+o.batch, o.count); i++ {
			m := primitive.NewMessage(o.topic, fmt.Appendf(nil, "message %d ü中", i))
			m.WithKeys([]string{strconv.Itoa(i)})
			if o.tags != "" {
				m.WithTag(tags[i%len(tags)])
			}
			batch = append(batch, m)
		}
		r, err := p.SendSync(context.Background(), batch...)
		if err != nil {
			return err
		}
		if r.Status != primitive.SendOK {
			return fmt.Errorf("message %d: status %d", n, r.Status)
		}
		// This client gives the messages of a batch no unique keys: their
		// consumer sees offset ids.
		ids := strings.Split(r.OffsetMsgID, ",")
		for i, m := range batch {
			id := ids[min(i, len(ids)-1)]
			if unique := m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex); unique != "" {
				id = unique
			}
			fmt.Fprintf(out, "%d %d %s %s\n", r.MessageQueue.QueueId, r.QueueOffset+int64(i), id, m.GetKeys())
		}
	}
	return nil
}

func consume(o options) (err error) {
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer([]string{o.namesrv}), consumer.WithGroupName(o.group),
		consumer.WithInstance(o.instance), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumeGoroutineNums(1))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done) })
	if o.stay {
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); end() }()
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: o.tag}
	err = c.Subscribe(o.topic, selector, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			sum := sha256.Sum256(m.Body)
			fmt.Printf("%d\t%d\t%s\t%s\t%s\t%s\t%s\t%d\n", m.Queue.QueueId, m.QueueOffset, m.MsgId, m.GetKeys(), m.GetTags(),
				m.GetShardingKey(), hex.EncodeToString(sum[:8]), m.ReconsumeTimes)
			seen[m.MsgId] = true
		}
		if len(seen) >= o.expect {
			end()
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	fmt.Println("# started")
	defer func() { err = errors.Join(err, c.Shutdown()) }()
	select {
	case <-done:
		return nil
	case <-time.After(time.Duration(o.timeout) * time.Second):
		mu.Lock()
		defer mu.Unlock()
		return fmt.Errorf("%w: %d of %d messages", errTime, len(seen), o.expect)
	}
}
