package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"
)

const (
	pullCode      = 11
	subscribedBit = 4
	suspendBit    = 2
)

// Answers to a pull that finds no message where it looks, and goes on from elsewhere.
const (
	pullFoundNone = 19
	pullAgain     = 20
	pullMoved     = 21
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

// pullFrames makes the pulls of one queue, which differ in their offset and number: to marshal each
// of them would cost more than all else that is done for it.
type pullFrames struct {
	before, behind, frame []byte
	opaqueAt              int // In what is behind the offset.
	full                  func(offset int) *request
}

const offsetMark = 1_111_111_111_111_111_111

func newPullFrames(o options, group string, queue int) *pullFrames {
	full := func(offset int) *request {
		ext := pullFields(o, group, queue, offset, o.pullCount, subscribedBit, 0)
		return newRequest(pullCode, ext, nil, o.notation)
	}
	made := &pullFrames{full: full}
	if o.notation == "json" {
		pattern := full(offsetMark)
		made.before, made.behind, _ = bytes.Cut(pattern.frame, strconv.AppendInt(nil, offsetMark, 10))
		made.opaqueAt = pattern.opaqueAt - (len(pattern.frame) - len(made.behind))
	}
	return made
}

// at returns the frame of a pull; it is good until the next one.
func (p *pullFrames) at(offset, number int) []byte {
	if p.before == nil {
		return p.full(offset).numbered(number) // A binary header has sizes in many places.
	}
	p.frame = append(p.frame[:0], p.before...)
	p.frame = strconv.AppendInt(p.frame, int64(offset), 10)
	opaque := p.behind[p.opaqueAt:p.opaqueAt]
	strconv.AppendInt(opaque, int64(opaqueBase+number), 10)
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

// puller reads one queue, one pull at a time.
type puller struct {
	frames    *pullFrames
	offset    int
	number    int
	isWaiting bool
	messages  int
	volume    int
	refusals
}

func (p *puller) hasNext() bool {
	return !p.isWaiting
}

func (p *puller) next(until time.Time) []byte {
	if time.Now().After(until) {
		return nil
	}
	p.isWaiting = true
	p.number = (p.number + 1) % numberLimit
	return p.frames.at(p.offset, p.number)
}

func (p *puller) take(got answer, _ time.Time) error {
	if !p.isWaiting || got.number != p.number {
		return fmt.Errorf("an answer to pull %d, which is not under way", got.number)
	}
	p.isWaiting = false
	switch got.code {
	case 0:
		count := 0
		records(got.body, func([]byte) { count++ })
		p.offset += count
		p.messages += count
		p.volume += len(got.body)
		return nil
	case pullFoundNone, pullAgain, pullMoved:
	default:
		p.refused(got.code, 1)
	}
	p.offset = 0 // At the end, from the start again.
	return nil
}

func (p *puller) missing() int {
	if p.isWaiting {
		return 1
	}
	return 0
}

func pull(o options) (result, error) {
	pullers := make([]*puller, o.queues)
	for queue := range pullers {
		pullers[queue] = &puller{frames: newPullFrames(o, "CID_load", queue)}
	}
	took, err := converse(o, pullers)
	if err != nil {
		return nil, err
	}
	messages, volume := 0, 0
	var all refusals
	for _, one := range pullers {
		messages += one.messages
		volume += one.volume
		all.add(one.refusals)
	}
	all.tell("pulls")
	return result{
		"msgs_per_s": float64(messages) / took.Seconds(),
		"mb_per_s":   float64(volume) / took.Seconds() / 1e6,
		"failed":     all.count,
	}, nil
}
