package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	pullCode      = 11
	maxOffsetCode = 30
	subscribedBit = 4
	suspendBit    = 2
	recordBodyAt  = 88
)

func pullFields(o options, group string, queue, offset, count, sysFlag, suspendMs int) fields {
	return fields{
		"consumerGroup": group, "topic": o.topic, "queueId": strconv.Itoa(queue),
		"queueOffset": strconv.Itoa(offset), "maxMsgNums": strconv.Itoa(count),
		"sysFlag": strconv.Itoa(sysFlag), "commitOffset": "0",
		"suspendTimeoutMillis": strconv.Itoa(suspendMs), "subscription": "*", "subVersion": "0",
		"expressionType": "TAG",
	}
}

// pullFrames makes the pulls of one queue, which differ in their offset: to marshal each of them
// would cost more than all else that is done for it.
type pullFrames struct {
	before, behind, frame []byte
	full                  func(offset int) []byte
}

const offsetMark = 1_111_111_111_111_111_111

func newPullFrames(o options, group string, queue int) *pullFrames {
	full := func(offset int) []byte {
		ext := pullFields(o, group, queue, offset, o.pullCount, subscribedBit, 0)
		return newRequest(pullCode, ext, nil, o.notation).frame
	}
	made := &pullFrames{full: full}
	if o.notation == "json" {
		made.before, made.behind, _ = bytes.Cut(full(offsetMark), strconv.AppendInt(nil, offsetMark, 10))
	}
	return made
}

// at returns the frame of a pull; it is good until the next one.
func (p *pullFrames) at(offset int) []byte {
	if p.before == nil {
		return p.full(offset) // A binary header has sizes in many places.
	}
	p.frame = append(p.frame[:0], p.before...)
	p.frame = strconv.AppendInt(p.frame, int64(offset), 10)
	p.frame = append(p.frame, p.behind...)
	binary.BigEndian.PutUint32(p.frame, uint32(len(p.frame)-4))
	binary.BigEndian.PutUint32(p.frame[4:], uint32(len(p.frame)-prefixSize))
	return p.frame
}

// records calls with each record of a pulled body.
func records(body []byte, each func(record []byte)) {
	for len(body) >= 4 {
		size := int(binary.BigEndian.Uint32(body))
		if size < 4 || size > len(body) {
			return
		}
		each(body[:size])
		body = body[size:]
	}
}

func pull(o options) (result, error) {
	var messages, volume atomic.Int64
	began := time.Now()
	failures := make(chan error, o.queues)
	var running sync.WaitGroup
	for queue := 0; queue < o.queues; queue++ {
		conn, err := net.Dial("tcp", o.broker(queue))
		if err != nil {
			return nil, err
		}
		running.Add(1)
		go func(queue int, conn net.Conn) {
			defer running.Done()
			defer conn.Close()
			answers, offset := newAnswerReader(conn, 1<<20), 0
			pulls := newPullFrames(o, "CID_load", queue)
			for time.Since(began) < o.duration {
				if _, err := conn.Write(pulls.at(offset)); err != nil {
					failures <- err
					return
				}
				got, err := answers.next()
				if err != nil {
					failures <- err
					return
				}
				if got.code != 0 {
					offset = 0 // At the end, from the start again.
					continue
				}
				count := 0
				records(got.body, func([]byte) { count++ })
				offset += count
				messages.Add(int64(count))
				volume.Add(int64(len(got.body)))
			}
		}(queue, conn)
	}
	running.Wait()
	seconds := time.Since(began).Seconds()
	select {
	case err := <-failures:
		return nil, err
	default:
	}
	return result{
		"msgs_per_s": float64(messages.Load()) / seconds,
		"mb_per_s":   float64(volume.Load()) / seconds / 1e6,
	}, nil
}

// push sends at a fixed rate while a pull of each queue waits; a message takes from just before it
// is sent until a waiting pull brings it.
func push(o options) (result, error) {
	var all latencies
	until := time.Now().Add(o.duration)
	var running sync.WaitGroup
	for queue := 0; queue < queueCount; queue++ {
		conn, err := net.Dial("tcp", o.broker(0))
		if err != nil {
			return nil, err
		}
		answers := newAnswerReader(conn, 1<<20)
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
		answers := newAnswerReader(conn, 64<<10)
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
