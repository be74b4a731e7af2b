package main

import (
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	maxOffsetCode = 30
	recordBodyAt  = 88
)

// push sends at a fixed rate while a pull of each queue waits; a message takes from just before it
// is sent until a waiting pull brings it.
//
// It has goroutines, because it needs a clock for what it sends and they mostly sleep: a runtime
// that has nothing else to do waits for its sockets, and is woken by them at once.
func push(o options) (result, error) {
	var all latencies
	until := time.Now().Add(o.duration)
	var running sync.WaitGroup
	for queue := 0; queue < queueCount; queue++ {
		conn, err := net.Dial("tcp", o.broker(0))
		if err != nil {
			return nil, err
		}
		answers := &answerReader{from: conn}
		ask := newRequest(maxOffsetCode, fields{"topic": o.topic, "queueId": strconv.Itoa(queue)}, nil, "json")
		if _, err := conn.Write(ask.frame); err != nil {
			return nil, err
		}
		end, err := answers.next()
		if err != nil {
			return nil, err
		}
		if end.offset < 0 {
			return nil, errors.New("the broker does not say where a queue ends")
		}
		running.Add(1)
		go func(queue, offset int) {
			defer running.Done()
			defer conn.Close()
			var took []time.Duration
			for time.Now().Before(until.Add(500 * time.Millisecond)) {
				ext := pullFields(o, "CID_push", queue, offset, 32, subscribedBit|suspendBit, 1000)
				if _, err := conn.Write(newRequest(pullCode, ext, nil, "json").frame); err != nil {
					break
				}
				got, err := answers.next()
				if err != nil {
					break
				}
				now := time.Now().UnixNano()
				if got.code == 0 {
					records(got.body, func(record []byte) {
						sent := int64(binary.BigEndian.Uint64(record[recordBodyAt:]))
						took = append(took, time.Duration(now-sent))
						offset++
					})
				}
			}
			all.add(took)
		}(queue, end.offset)
	}
	sent, err := sendAtRate(o, until)
	if err != nil {
		return nil, err
	}
	running.Wait()
	made := result{"sent": sent, "received": len(all.times)}
	for name, value := range all.percentiles() {
		made[name] = value
	}
	return made, nil
}

func sendAtRate(o options, until time.Time) (int, error) {
	conn, err := net.Dial("tcp", o.broker(0))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	go func() {
		answers := &answerReader{from: conn}
		for {
			if _, err := answers.next(); err != nil {
				return
			}
		}
	}()
	body, count := make([]byte, o.size), 0
	for due := time.Now(); time.Now().Before(until); due = due.Add(time.Second / time.Duration(o.rate)) {
		time.Sleep(time.Until(due))
		binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
		ext := sendFields(o.topic, count, "TAGS\x01TagA\x02", false)
		if _, err := conn.Write(newRequest(sendCode, ext, body, o.notation).numbered(count)); err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}
