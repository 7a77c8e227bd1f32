// Publish to and consume from a JetStream work queue, as bench/load does with a queue over AMQP: every
// body carries a sequence number, the time of sending and a checksum; the report is JSON.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	stream     = "BENCH"
	subject    = "bench"
	headBytes  = 24 // sequence, time of sending, checksum; padded
	ticksPerS  = 100
	grace      = 30 * time.Second
	ackWait    = 60 * time.Second
	replicas   = 3
	maxPending = 1 << 20
)

type latencies struct {
	mutex  sync.Mutex
	values []int64
}

func (l *latencies) add(ns int64) {
	l.mutex.Lock()
	l.values = append(l.values, ns)
	l.mutex.Unlock()
}

// Milliseconds; 0 without values.
func (l *latencies) percentiles() map[string]float64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	sort.Slice(l.values, func(i, j int) bool { return l.values[i] < l.values[j] })
	at := func(share float64) float64 {
		if len(l.values) == 0 {
			return 0
		}
		return float64(l.values[int(share*float64(len(l.values)-1))]) / 1e6
	}
	return map[string]float64{"p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": at(1)}
}

func check(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

// Seconds of processor time that a process has used.
func cpu(pid string) float64 {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	check(err, "reading the processor time of "+pid)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticksPerS
}

func cpuOf(pids []string) float64 {
	total := 0.0
	for _, pid := range pids {
		total += cpu(pid)
	}
	return total
}

func write(body []byte, sequence uint64) {
	binary.LittleEndian.PutUint64(body, sequence)
	binary.LittleEndian.PutUint64(body[8:], uint64(time.Now().UnixNano()))
	for at := headBytes; at < len(body); at++ {
		body[at] = byte(sequence + uint64(at))
	}
	binary.LittleEndian.PutUint32(body[16:], 0)
	binary.LittleEndian.PutUint32(body[16:], crc32.ChecksumIEEE(body))
}

// The sequence and time of a body; false: it is damaged.
func read(data []byte) (uint64, int64, bool) {
	if len(data) < headBytes {
		return 0, 0, false
	}
	body := append([]byte(nil), data...)
	sum := binary.LittleEndian.Uint32(body[16:])
	binary.LittleEndian.PutUint32(body[16:], 0)
	sequence := binary.LittleEndian.Uint64(body)
	return sequence, int64(binary.LittleEndian.Uint64(body[8:])), crc32.ChecksumIEEE(body) == sum
}

func main() {
	targets := flag.String("targets", "", "host:port,…")
	size := flag.Int("size", 1024, "bytes of a body")
	window := flag.Int("window", 1000, "unconfirmed messages of the publisher")
	prefetch := flag.Int("prefetch", 1000, "unacknowledged messages of the consumer")
	rate := flag.Float64("rate", 0, "messages per second, open loop; 0: as the window allows")
	seconds := flag.Float64("time", 10, "of measuring")
	warmup := flag.Float64("warmup", 2, "seconds before")
	watch := flag.String("watch", "", "pids of the servers")
	if len(os.Args) < 2 || os.Args[1] != "pubsub" {
		check(fmt.Errorf("the mode must be pubsub"), "nats_load MODE --option value …")
	}
	check(flag.CommandLine.Parse(os.Args[2:]), "options")
	if *size < headBytes {
		check(fmt.Errorf("%d bytes: the least is %d", *size, headBytes), "--size")
	}
	pids := strings.Split(*watch, ",")
	urls := "nats://" + strings.ReplaceAll(*targets, ",", ",nats://")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	consuming, err := nats.Connect(urls)
	check(err, "connecting")
	publishing, err := nats.Connect(urls)
	check(err, "connecting")
	admin, err := jetstream.New(consuming)
	check(err, "JetStream")
	made, err := admin.CreateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{subject}, Retention: jetstream.WorkQueuePolicy,
		Replicas: replicas, Storage: jetstream.FileStorage,
	})
	check(err, "creating the stream")
	consumer, err := made.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		MaxAckPending: *prefetch,
	})
	check(err, "creating the consumer")

	var measuring atomic.Bool
	var delivered, distinct, doubled, disordered, bad, consumed atomic.Int64
	var confirms, deliveries latencies
	seen := map[uint64]bool{}
	last := uint64(0)
	consuming1, err := consumer.Consume(func(message jetstream.Msg) {
		now := time.Now().UnixNano()
		sequence, sent, whole := read(message.Data())
		delivered.Add(1)
		if !whole {
			bad.Add(1)
		} else if seen[sequence] {
			doubled.Add(1)
		} else {
			seen[sequence] = true
			distinct.Add(1)
			if sequence < last {
				disordered.Add(1)
			}
			last = max(last, sequence)
		}
		if measuring.Load() {
			consumed.Add(1)
			deliveries.add(now - sent)
		}
		if err := message.Ack(); err != nil {
			bad.Add(1)
		}
	}, jetstream.PullMaxMessages(*prefetch))
	check(err, "consuming")

	js, err := jetstream.New(publishing, jetstream.WithPublishAsyncMaxPending(maxPending))
	check(err, "JetStream")
	var published, confirmed, failed, measured atomic.Int64
	var stop atomic.Bool
	slots := make(chan struct{}, *window)
	var waiting sync.WaitGroup
	publisher := make(chan struct{})
	go func() {
		defer close(publisher)
		began := time.Now()
		for sequence := uint64(1); !stop.Load(); sequence++ {
			from := time.Now()
			if *rate > 0 {
				due := began.Add(time.Duration(float64(sequence-1) / *rate * 1e9))
				time.Sleep(time.Until(due))
				from = due // open loop: a late send counts as waiting
			}
			slots <- struct{}{}
			body := make([]byte, *size)
			write(body, sequence)
			if *rate == 0 {
				from = time.Now()
			}
			future, err := js.PublishAsync(subject, body)
			check(err, "publishing")
			published.Add(1)
			waiting.Add(1)
			go func() {
				defer waiting.Done()
				select {
				case <-future.Ok():
					confirmed.Add(1)
					if measuring.Load() {
						measured.Add(1)
						confirms.add(time.Since(from).Nanoseconds())
					}
				case <-future.Err():
					failed.Add(1)
				}
				<-slots
			}()
		}
		waiting.Wait()
	}()
	time.Sleep(time.Duration(*warmup * 1e9))
	before, began := cpuOf(pids), time.Now()
	measuring.Store(true)
	time.Sleep(time.Duration(*seconds * 1e9))
	measuring.Store(false)
	took := time.Since(began).Seconds()
	used := cpuOf(pids) - before
	stop.Store(true)
	<-publisher
	for end := time.Now().Add(grace); distinct.Load() < confirmed.Load() && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	consuming1.Stop()
	report := map[string]any{
		"size": *size, "window": *window, "prefetch": *prefetch, "rate": *rate, "seconds": took,
		"published_per_s": float64(measured.Load()) / took,
		"consumed_per_s":  float64(consumed.Load()) / took,
		"published":       published.Load(), "confirmed": confirmed.Load(), "nacked": failed.Load(),
		"delivered": delivered.Load(), "distinct": distinct.Load(),
		"lost":       max(0, confirmed.Load()-distinct.Load()),
		"duplicates": doubled.Load(), "order_violations": disordered.Load(), "bad_bodies": bad.Load(),
		"errors": 0, "blocked": 0,
		"confirm_ms": confirms.percentiles(), "e2e_ms": deliveries.percentiles(),
		"cpu": map[string]any{"watched_cores": used / took},
	}
	check(admin.DeleteStream(ctx, stream), "deleting the stream")
	check(json.NewEncoder(os.Stdout).Encode(report), "the report")
}
