// Package client is the RocketMQ client: routes and heartbeats, producers, push
// consumers, single pulls and offsets.
//
// A Client is one member of the cluster with one client id. It keeps the routes
// of the topics in use and, while anything produces or consumes through it,
// reports to their brokers every 30 s.
//
//	c, err := client.New(client.Options{NameServers: []string{"127.0.0.1:9876"}})
//	go c.Run(ctx)
//	p, err := client.NewProducer(c, client.ProducerOptions{Group: "orders"})
//	result, err := p.Send(ctx, &message.Message{Topic: "orders", Body: body})
//
// Goroutines: Client.Run keeps the connections, refreshes routes and sends
// heartbeats. PushConsumer.Run rebalances and commits offsets and has two
// goroutines per queue that it owns: one pulls into the process queue, one calls
// the listener. Producers and single calls work on the caller's goroutine.
//
// Lock order: PushConsumer.mu, then processQueue.mu; no lock is held during a
// call to a server or to the listener.
package client
