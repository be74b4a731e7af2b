package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net"
	"strconv"
	"sync"
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

// sender keeps the window of one connection full.
type sender struct {
	conn         net.Conn
	request      *request
	window       int
	batch        int
	left         int
	next         uint64
	began        []time.Time
	took         []time.Duration
	acknowledged int
	refused      int
	firstRefusal int
}

func (s *sender) put(slot int) error {
	s.left--
	s.request.setUnique(s.next)
	s.next += uint64(s.batch)
	s.began[slot] = time.Now()
	_, err := s.conn.Write(s.request.numbered(slot))
	return err
}

func (s *sender) run(until time.Time) error {
	defer s.conn.Close()
	underWay := min(s.window, s.left)
	for slot := 0; slot < underWay; slot++ {
		if err := s.put(slot); err != nil {
			return err
		}
	}
	answers := newAnswerReader(s.conn, 64<<10)
	for underWay > 0 {
		got, err := answers.next()
		if err != nil {
			return err
		}
		now := time.Now()
		if got.code == 0 {
			s.acknowledged++
		} else {
			s.refused++
			s.firstRefusal = got.code
		}
		s.took = append(s.took, now.Sub(s.began[got.number]))
		if s.left == 0 || now.After(until) {
			underWay--
		} else if err := s.put(got.number); err != nil {
			return err
		}
	}
	return nil
}

func send(o options) (result, error) {
	senders := make([]*sender, o.connections)
	for number := range senders {
		conn, err := net.Dial("tcp", o.broker(number))
		if err != nil {
			return nil, err
		}
		senders[number] = &sender{
			conn: conn, request: sendRequest(o, number), window: o.window,
			batch: o.batch, left: o.requests(number), next: uint64(number)<<40 + 1, began: make([]time.Time, o.window),
		}
	}
	began := time.Now()
	failures := make(chan error, len(senders))
	var running sync.WaitGroup
	for _, one := range senders {
		running.Add(1)
		go func(one *sender) {
			defer running.Done()
			if err := one.run(began.Add(o.duration)); err != nil {
				failures <- err
			}
		}(one)
	}
	running.Wait()
	seconds := time.Since(began).Seconds()
	select {
	case err := <-failures:
		return nil, err
	default:
	}
	var all latencies
	acknowledged, refused := 0, 0
	for _, one := range senders {
		all.add(one.took)
		acknowledged += one.acknowledged * o.batch
		refused += one.refused * o.batch
	}
	made := result{"msgs_per_s": float64(acknowledged) / seconds, "failed": refused}
	for name, value := range all.percentiles() {
		made[name] = value
	}
	return made, nil
}
