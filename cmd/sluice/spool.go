package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/protocol/message"
)

// maxShownBody bounds what a compressed body may become when it is shown.
const maxShownBody = 64 << 20

func newSpool() *cobra.Command {
	cmd := group("spool", "Look into a stopped store",
		"  sluice spool stat sluice-data/sidecar\n  sluice spool dump sluice-data/broker --queue orders/0 --from 100 --count 10")
	cmd.Long = `Look into the store of a stopped process; stat and dump read an Apache broker's as well and change nothing.
A store that is in use is refused.`
	cmd.AddCommand(newSpoolStat(), newSpoolDump(), newSpoolForget())
	return cmd
}

func newSpoolStat() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stat DIR",
		Short: "Print the log's extent and the bounds of every queue",
		Long: `Print the log's extent and the bounds of every queue. With --verify, every record's checksums are
compared as well; damage is an error.`,
		Example: "  sluice spool stat sluice-data/sidecar\n  sluice spool stat --verify /root/store",
		Args:    cobra.ExactArgs(1),
	}
	verify := cmd.Flags().Bool("verify", false, "compare the checksums of every record")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := openOffline(args[0])
		if err != nil {
			return err
		}
		defer s.close()
		return s.stat(cmd.OutOrStdout(), *verify)
	}
	return cmd
}

func (s *offlineStore) stat(w io.Writer, verify bool) error {
	var bytes, count, first, last int64
	var damaged error
	end, err := s.records(func(v message.View) bool {
		if count == 0 {
			first = v.StoreTimestamp()
		}
		last = v.StoreTimestamp()
		count++
		bytes += int64(v.Size())
		if verify {
			if damaged = v.Verify(); damaged != nil {
				damaged = fmt.Errorf("log offset %d: %w", v.PhysicalOffset(), damaged)
			}
		}
		return damaged == nil
	})
	if err == nil {
		err = damaged
	}
	begin := int64(0)
	if len(s.segments) > 0 {
		begin = s.segments[0].base
	}
	stop := "clean"
	if s.crashed() {
		stop = "crash; the next start recovers"
	}
	rows := [][]any{{"directory", s.dir}, {"last stop", stop}, {"segments", len(s.segments)}, {"log offsets", fmt.Sprintf("%d to %d", begin, end)},
		{"records", count}, {"bytes", bytes}}
	if count > 0 {
		rows = append(rows, []any{"stored", wallTime(first) + " to " + wallTime(last)})
	}
	if tableErr := table(w, rows); tableErr != nil {
		return tableErr
	}
	if queuesErr := s.statQueues(w); err == nil {
		err = queuesErr
	}
	return err
}

// statQueues prints the queues, and how far the cursors of each are.
func (s *offlineStore) statQueues(w io.Writer) error {
	queues, err := s.queues()
	if err != nil || len(queues) == 0 {
		return err
	}
	rows := [][]any{{"TOPIC", "QUEUE", "MIN", "MAX", "MESSAGES"}}
	ends := map[string]int64{}
	for _, q := range queues {
		rows = append(rows, []any{q.topic, q.id, q.min, q.max, q.max - q.min})
		ends[fmt.Sprintf("%s/%d", q.topic, q.id)] = q.max
	}
	fmt.Fprintln(w)
	if err := table(w, rows); err != nil {
		return err
	}
	cursors, err := s.cursors()
	if err != nil || len(cursors) == 0 {
		return err
	}
	rows = [][]any{{"CURSOR", "TOPIC", "QUEUE", "OFFSET", "BEHIND"}}
	for _, c := range cursors {
		rows = append(rows, []any{c.Name, c.Topic, c.Queue, c.Offset, max(ends[fmt.Sprintf("%s/%d", c.Topic, c.Queue)]-c.Offset, 0)})
	}
	fmt.Fprintln(w)
	return table(w, rows)
}

func newSpoolDump() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Print the messages of a store as JSON, one a line",
		Long:  `Print the messages of a store as JSON, one a line: all in the order of the log, or those of one queue.`,
		Example: `  sluice spool dump sluice-data/sidecar
  sluice spool dump sluice-data/sidecar --queue orders/0 --from 100 --count 10`,
		Args: cobra.ExactArgs(1),
	}
	queue := cmd.Flags().String("queue", "", "only the queue `TOPIC/NUMBER`")
	from := cmd.Flags().Int64("from", 0, "skip messages before this queue offset")
	count := cmd.Flags().Int64("count", 0, "stop after `N` messages; 0: never")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *from < 0 || *count < 0 {
			return usagef("--from and --count: want 0 or more")
		}
		d := &dump{out: json.NewEncoder(cmd.OutOrStdout()), from: *from, left: *count, bounded: *count > 0}
		topic, number, err := queueName(*queue)
		if err != nil {
			return err
		}
		s, err := openOffline(args[0])
		if err != nil {
			return err
		}
		defer s.close()
		if topic == "" {
			return d.log(s)
		}
		return d.queue(s, topic, number)
	}
	return cmd
}

// queueName reads "orders/0"; the topic is empty when no queue was named.
func queueName(text string) (topic string, number int, err error) {
	if text == "" {
		return "", 0, nil
	}
	topic, digits, found := strings.Cut(text, "/")
	number, err = strconv.Atoi(digits)
	if !found || err != nil || number < 0 {
		return "", 0, usagef("--queue: %q is not TOPIC/NUMBER", text)
	}
	if err := message.ValidateTopic(topic); err != nil {
		return "", 0, usageError{err}
	}
	return topic, number, nil
}

// A dump prints messages until it has printed enough.
type dump struct {
	out     *json.Encoder
	from    int64
	left    int64
	bounded bool
}

func (d *dump) log(s *offlineStore) error {
	var failed error
	_, err := s.records(func(v message.View) bool {
		if v.QueueOffset() < d.from {
			return true
		}
		var more bool
		more, failed = d.print(v)
		return more && failed == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

func (d *dump) queue(s *offlineStore, topic string, number int) error {
	q, err := s.queue(topic, number)
	if err != nil {
		return err
	}
	for offset := max(d.from, q.min); offset < q.max; offset++ {
		at, size, err := q.unit(offset)
		if err != nil {
			return err
		}
		if size == gapSize {
			continue
		}
		v, err := s.recordAt(at, size)
		if err != nil {
			return fmt.Errorf("queue offset %d: %w", offset, err)
		}
		if more, err := d.print(v); err != nil || !more {
			return err
		}
	}
	return nil
}

func (d *dump) print(v message.View) (more bool, err error) {
	var m message.Message
	if err := message.Decode(v.Bytes(), &m); err != nil {
		return false, fmt.Errorf("log offset %d: %w", v.PhysicalOffset(), err)
	}
	// A body that cannot be decompressed is shown as it is stored.
	if plain, err := message.Decompress(m.SysFlag, m.Body, maxShownBody); err == nil {
		m.Body = plain
	}
	line := struct {
		shownMessage
		LogOffset int64 `json:"log_offset"`
		Size      int   `json:"size"`
	}{shown(&m), v.PhysicalOffset(), v.Size()}
	if err := d.out.Encode(line); err != nil {
		return false, err
	}
	d.left--
	return !d.bounded || d.left > 0, nil
}
