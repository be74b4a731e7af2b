package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	readSize    = 64 << 10
	answerLimit = 64 << 20
	// Up to behind the opaque number.
	binaryHeaderLeast = 9
)

// answer is what a load has to know of an answer.
type answer struct {
	code   int
	number int
	body   []byte
	offset int
}

// answerStream cuts answers from what was read of a connection.
type answerStream struct {
	held       []byte
	start, end int
}

// room returns where the next read puts its bytes; filled is told how many these were.
func (s *answerStream) room() []byte {
	if s.start == s.end {
		s.start, s.end = 0, 0
	}
	if len(s.held)-s.end < readSize {
		into := s.held
		if len(into)-(s.end-s.start) < readSize {
			into = make([]byte, 2*(len(s.held)+readSize))
		}
		s.end = copy(into, s.held[s.start:s.end])
		s.held, s.start = into, 0
	}
	return s.held[s.end : s.end+readSize]
}

func (s *answerStream) filled(count int) {
	s.end += count
}

// next returns the next answer, and whether it is there as a whole; its body is good until room is
// asked for.
func (s *answerStream) next() (answer, bool, error) {
	rest := s.held[s.start:s.end]
	if len(rest) < prefixSize {
		return answer{}, false, nil
	}
	size := int(binary.BigEndian.Uint32(rest)) - 4
	word := binary.BigEndian.Uint32(rest[4:])
	headerSize := int(word &^ (0xff << 24))
	if size < headerSize || size > answerLimit {
		return answer{}, false, fmt.Errorf("a frame of %d bytes with a header of %d", size, headerSize)
	}
	if len(rest) < prefixSize+size {
		return answer{}, false, nil
	}
	s.start += prefixSize + size
	header := rest[prefixSize : prefixSize+headerSize]
	got := answer{body: rest[prefixSize+headerSize : prefixSize+size], offset: -1}
	if word&binaryHeader != 0 {
		if headerSize < binaryHeaderLeast {
			return answer{}, false, fmt.Errorf("a binary header of %d bytes", headerSize)
		}
		got.code = int(binary.BigEndian.Uint16(header))
		got.number = int(binary.BigEndian.Uint32(header[5:])) - opaqueBase
		return got, true, nil
	}
	got.code = numberBehind(header, `"code":`)
	got.number = numberBehind(header, `"opaque":`) - opaqueBase
	got.offset = numberBehind(header, `"offset":"`)
	return got, true, nil
}

// answerReader waits for answers one by one.
type answerReader struct {
	from   io.Reader
	stream answerStream
}

// next returns the next answer; its body is good until the one after it is read.
func (r *answerReader) next() (answer, error) {
	for {
		got, isWhole, err := r.stream.next()
		if isWhole || err != nil {
			return got, err
		}
		count, err := r.from.Read(r.stream.room())
		if err != nil {
			return answer{}, err
		}
		r.stream.filled(count)
	}
}

// numberBehind returns the number that follows a name in JSON, -1 if there is none: to parse the
// whole header would cost more than all else that is done here.
func numberBehind(header []byte, name string) int {
	at := bytes.Index(header, []byte(name))
	if at < 0 {
		return -1
	}
	number := 0
	for _, digit := range header[at+len(name):] {
		if digit < '0' || digit > '9' {
			break
		}
		number = 10*number + int(digit-'0')
	}
	return number
}
