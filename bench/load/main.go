// Command load puts load on a broker of RocketMQ 4.x and says what the broker did of it.
//
//	load send -addr HOST:PORT[,HOST:PORT] -topic T [-conns 4] [-window 64] [-size 128] [-batch 1] [-header json] [-count N]
//	load pull -addr HOST:PORT -topic T [-queues 4] [-max 32]
//	load push -addr HOST:PORT -topic T [-rate 1000]
//
// With several addresses the connections of sends and pulls are spread over them in turn.
//
// Each connection keeps a fixed number of requests under way, and as little as possible is done
// besides: what is measured is the broker.  The topic has to have four queues; a broker that makes
// topics by itself makes it at the first send.  The result is one JSON object on standard output.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

const (
	queueCount = 4
	// How long answers are awaited when the time is over.
	patience = 5 * time.Second
)

type options struct {
	address, topic, notation string
	connections, window      int
	size, batch, rate        int
	queues, pullCount, count int
	duration, patience       time.Duration
}

// broker returns the address that a connection goes to.
func (o options) broker(connection int) string {
	addresses := strings.Split(o.address, ",")
	return addresses[connection%len(addresses)]
}

// requests returns how many requests a connection sends at most.
func (o options) requests(connection int) int {
	if o.count == 0 {
		return math.MaxInt
	}
	all := (o.count + o.batch - 1) / o.batch
	return (all + o.connections - 1 - connection) / o.connections
}

type result map[string]any

func main() {
	modes := map[string]func(options) (result, error){"send": send, "pull": pull, "push": push}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		stop(fmt.Errorf("usage: load send|pull|push [options]"))
	}
	o := options{patience: patience}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.address, "addr", "127.0.0.1:10911", "where the broker listens, or several of them")
	flags.StringVar(&o.topic, "topic", "LoadTopic", "topic")
	flags.StringVar(&o.notation, "header", "json", "notation of headers: json or rocketmq")
	flags.IntVar(&o.connections, "conns", 4, "connections")
	flags.IntVar(&o.window, "window", 64, "requests under way on each connection")
	flags.IntVar(&o.size, "size", 128, "bytes of a body")
	flags.IntVar(&o.batch, "batch", 1, "messages of a request")
	flags.IntVar(&o.rate, "rate", 1000, "messages a second, for push")
	flags.IntVar(&o.queues, "queues", queueCount, "queues that are read, each by a connection")
	flags.IntVar(&o.pullCount, "max", 32, "messages of a pull at most")
	flags.IntVar(&o.count, "count", 0, "messages to send, in whole batches; 0 is as many as the time allows")
	seconds := flags.Float64("seconds", 5, "how long")
	_ = flags.Parse(os.Args[2:])
	if o.connections < 1 || o.window < 1 || o.batch < 1 || o.rate < 1 || o.queues < 1 || o.size < 8 {
		stop(fmt.Errorf("counts begin at 1, bodies at 8 bytes"))
	}
	o.duration = time.Duration(*seconds * float64(time.Second))
	made, err := modes[os.Args[1]](o)
	if err != nil {
		stop(err)
	}
	made["mode"] = os.Args[1]
	if err := json.NewEncoder(os.Stdout).Encode(made); err != nil {
		stop(err)
	}
}

func stop(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}
