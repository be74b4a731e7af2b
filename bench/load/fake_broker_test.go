package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

const refusalCode = 2

var uniquePattern = regexp.MustCompile("UNIQ_KEY(?:\x01|\\\\u0001)([0-9A-F]{40})")

// habits is how a fake broker behaves; without any it answers each request at once.
type habits struct {
	delay       time.Duration // Before each answer.
	deaf        time.Duration // Before the first request is read.
	piece       int           // Bytes of each write, if answers are written in pieces.
	backwards   int           // So many answers are kept, and written together with the last one first.
	repeats     int           // So many times an answer is written once more.
	refuseEvery int
	closeAfter  int // Requests of a connection.
	hushAfter   int
	queueSize   int // Messages of each queue, for pulls.
}

type fakeBroker struct {
	habits
	address string
	guard   sync.Mutex
	unique  map[string]int
	asked   int
	refused int
	faults  []error
}

func newFakeBroker(t *testing.T, kind habits) *fakeBroker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	made := &fakeBroker{habits: kind, address: listener.Addr().String(), unique: map[string]int{}}
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Add(1)
			go func() {
				defer running.Done()
				defer conn.Close()
				made.fault(made.serve(conn))
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
		for _, fault := range made.faults {
			t.Error(fault)
		}
	})
	return made
}

func (b *fakeBroker) fault(err error) {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	var network *net.OpError
	if errors.As(err, &network) {
		return // A generator that has given up.
	}
	b.guard.Lock()
	defer b.guard.Unlock()
	b.faults = append(b.faults, err)
}

func (b *fakeBroker) serve(conn net.Conn) error {
	time.Sleep(b.deaf)
	var kept [][]byte
	for count := 1; ; count++ {
		got, err := readRequest(conn)
		if err != nil {
			return err
		}
		reply, err := b.reply(got)
		if err != nil {
			return err
		}
		if b.hushAfter > 0 && count > b.hushAfter {
			continue
		}
		if kept = append(kept, reply); len(kept) < b.backwards {
			continue
		}
		time.Sleep(b.delay)
		if err := b.write(conn, kept); err != nil {
			return err
		}
		kept = nil
		if count == b.closeAfter {
			return nil
		}
	}
}

func (b *fakeBroker) write(conn net.Conn, replies [][]byte) error {
	var all []byte
	for place := len(replies) - 1; place >= 0; place-- {
		all = append(all, bytes.Repeat(replies[place], 1+b.repeats)...)
	}
	piece := b.piece
	if piece == 0 {
		piece = len(all)
	}
	for len(all) > 0 {
		size := min(piece, len(all))
		if _, err := conn.Write(all[:size]); err != nil {
			return err
		}
		all = all[size:]
	}
	return nil
}

func (b *fakeBroker) reply(got askedFor) ([]byte, error) {
	b.guard.Lock()
	defer b.guard.Unlock()
	b.asked++
	if b.refuseEvery > 0 && b.asked%b.refuseEvery == 0 {
		b.refused++
		return got.answered(refusalCode, nil), nil
	}
	if got.code == pullCode {
		offset, err := strconv.Atoi(got.ext["queueOffset"])
		if err != nil {
			return nil, err
		}
		count, err := strconv.Atoi(got.ext["maxMsgNums"])
		if err != nil {
			return nil, err
		}
		if offset >= b.queueSize {
			return got.answered(pullFoundNone, nil), nil
		}
		return got.answered(0, recordsOf(min(count, b.queueSize-offset))), nil
	}
	for _, found := range uniquePattern.FindAllSubmatch(got.frame, -1) {
		b.unique[string(found[1])]++
	}
	return got.answered(0, nil), nil
}

// seen is what came to a broker.
type seen struct {
	asked, refused, different int
}

func (b *fakeBroker) seen() seen {
	b.guard.Lock()
	defer b.guard.Unlock()
	return seen{b.asked, b.refused, len(b.unique)}
}

func recordsOf(count int) []byte {
	const size = 100
	record := append(binary.BigEndian.AppendUint32(nil, size), make([]byte, size-4)...)
	return bytes.Repeat(record, count)
}

type askedFor struct {
	code, opaque int
	isBinary     bool
	ext          fields
	frame        []byte
}

func readRequest(from io.Reader) (askedFor, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(from, prefix[:]); err != nil {
		return askedFor{}, err
	}
	size := int(binary.BigEndian.Uint32(prefix[:])) - 4
	word := binary.BigEndian.Uint32(prefix[4:])
	headerSize := int(word & 0xffffff)
	if size < headerSize || size > answerLimit {
		return askedFor{}, fmt.Errorf("a request of %d bytes with a header of %d", size, headerSize)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(from, frame); err != nil {
		return askedFor{}, err
	}
	made := askedFor{isBinary: word != uint32(headerSize), frame: frame}
	header := frame[:headerSize]
	if made.isBinary {
		made.code = int(binary.BigEndian.Uint16(header))
		made.opaque = int(binary.BigEndian.Uint32(header[5:]))
		made.ext = fields{}
		for rest := header[21:]; len(rest) > 0; {
			var name, value []byte
			nameSize := int(binary.BigEndian.Uint16(rest))
			name, rest = rest[2:2+nameSize], rest[2+nameSize:]
			valueSize := int(binary.BigEndian.Uint32(rest))
			value, rest = rest[4:4+valueSize], rest[4+valueSize:]
			made.ext[string(name)] = string(value)
		}
		return made, nil
	}
	var read struct {
		Code, Opaque int
		ExtFields    fields
	}
	if err := json.Unmarshal(header, &read); err != nil {
		return askedFor{}, err
	}
	made.code, made.opaque, made.ext = read.Code, read.Opaque, read.ExtFields
	return made, nil
}

func (a askedFor) answered(code int, body []byte) []byte {
	header, word := []byte(fmt.Sprintf(
		`{"code":%d,"extFields":{"offset":"7"},"flag":1,"language":"JAVA","opaque":%d,"version":401}`,
		code, a.opaque)), uint32(0)
	if a.isBinary {
		header = binary.BigEndian.AppendUint16(nil, uint16(code))
		header = append(header, 0, 1, 145)
		header = binary.BigEndian.AppendUint32(header, uint32(a.opaque))
		header = binary.BigEndian.AppendUint32(header, 1)
		header, word = append(header, make([]byte, 8)...), 1<<24
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, word|uint32(len(header)))
	return append(append(frame, header...), body...)
}
