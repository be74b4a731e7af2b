package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
)

const (
	sendCode      = 310
	sendBatchCode = 320
	messageTexts  = "KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x017F0000010000000000000000" + uniqueMark + "\x02"
)

// sendFields are the fields of a send by their short names.
func sendFields(topic string, queue int, properties string, isBatch bool) fields {
	return fields{
		"a": "PID_load", "b": topic, "c": "TBW102", "d": strconv.Itoa(queueCount),
		"e": strconv.Itoa(queue % queueCount), "f": "0",
		"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": properties,
		"j": "0", "k": "false", "m": strconv.FormatBool(isBatch),
	}
}

// batchOf returns the body of a batch.
func batchOf(count, size int) []byte {
	body := bytes.Repeat([]byte("x"), size)
	var batch []byte
	for number := 0; number < count; number++ {
		texts := []byte(messageTexts)
		batch = binary.BigEndian.AppendUint32(batch, uint32(22+size+len(texts)))
		batch = binary.BigEndian.AppendUint32(batch, 0)
		batch = binary.BigEndian.AppendUint32(batch, crc32.ChecksumIEEE(body)&0x7fffffff)
		batch = binary.BigEndian.AppendUint32(batch, 0)
		batch = binary.BigEndian.AppendUint32(batch, uint32(size))
		batch = append(batch, body...)
		batch = binary.BigEndian.AppendUint16(batch, uint16(len(texts)))
		batch = append(batch, texts...)
	}
	return batch
}

func sendRequest(o options, connection int) *request {
	if o.batch > 1 {
		ext := sendFields(o.topic, connection, "", true)
		return newRequest(sendBatchCode, ext, batchOf(o.batch, o.size), o.notation)
	}
	ext := sendFields(o.topic, connection, "WAIT\x01true\x02"+messageTexts, false)
	return newRequest(sendCode, ext, bytes.Repeat([]byte("x"), o.size), o.notation)
}

// underWay is a place in a window. Each request that takes it has another number, so that an answer
// that comes twice is not taken for the answer to the next one.
type underWay struct {
	number int
	began  time.Time // Zero where no answer is awaited.
}

// sender keeps the window of one connection full.
type sender struct {
	request      *request
	batch        int
	left         int
	unique       uint64
	window       []underWay
	free         []int
	took         []time.Duration
	acknowledged int
	refusals
}

func newSender(o options, connection int) *sender {
	made := &sender{
		request: sendRequest(o, connection), batch: o.batch, left: o.requests(connection),
		unique: uint64(connection)<<40 + 1, window: make([]underWay, o.window),
	}
	for place := o.window - 1; place >= 0; place-- {
		made.window[place].number = place - o.window
		made.free = append(made.free, place)
	}
	return made
}

func (s *sender) hasNext() bool {
	return s.left > 0 && len(s.free) > 0
}

func (s *sender) next(until time.Time) []byte {
	s.request.setUnique(s.unique)
	now := time.Now()
	if now.After(until) {
		return nil
	}
	place := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.left--
	s.unique += uint64(s.batch)
	one := &s.window[place]
	one.began = now
	if one.number += len(s.window); one.number >= numberLimit {
		one.number = place
	}
	return s.request.numbered(one.number)
}

func (s *sender) take(got answer, arrived time.Time) error {
	place := max(got.number, 0) % len(s.window)
	one := &s.window[place]
	if one.began.IsZero() || one.number != got.number {
		return fmt.Errorf("an answer to request %d, which is not under way", got.number)
	}
	s.took = append(s.took, arrived.Sub(one.began))
	one.began = time.Time{}
	s.free = append(s.free, place)
	if got.code == 0 {
		s.acknowledged += s.batch
	} else {
		s.refused(got.code, s.batch)
	}
	return nil
}

func (s *sender) missing() int {
	return len(s.window) - len(s.free)
}

func send(o options) (result, error) {
	senders := make([]*sender, o.connections)
	for number := range senders {
		senders[number] = newSender(o, number)
	}
	took, err := converse(o, senders)
	if err != nil {
		return nil, err
	}
	var times latencies
	var all refusals
	acknowledged := 0
	for _, one := range senders {
		times.add(one.took)
		all.add(one.refusals)
		acknowledged += one.acknowledged
	}
	all.tell("messages")
	made := result{"msgs_per_s": float64(acknowledged) / took.Seconds(), "failed": all.count}
	for name, value := range times.percentiles() {
		made[name] = value
	}
	return made, nil
}
