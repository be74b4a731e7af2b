package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"strconv"
)

const (
	prefixSize     = 8
	binaryHeader   = 1 << 24
	languageGo     = 9
	clientVersion  = 401
	binaryOpaqueAt = prefixSize + 5
	// Ten digits always, so that the number can be replaced in place.
	opaqueBase = 1_000_000_000
)

type fields map[string]string

// request is one frame that is sent again and again; only its opaque number and, where its
// messages have them, the sixteen hexadecimal digits of their unique ids change.
type request struct {
	frame    []byte
	opaqueAt int
	isBinary bool
	uniqueAt []int
}

const uniqueMark = "@@@@@@@@@@@@@@@@"

func newRequest(code int, ext fields, body []byte, notation string) *request {
	header, isBinary := jsonHeader(code, ext), notation == "rocketmq"
	word := uint32(0)
	if isBinary {
		header, word = rocketmqHeader(code, ext), binaryHeader
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(body)))
	frame = binary.BigEndian.AppendUint32(frame, word|uint32(len(header)))
	frame = append(append(frame, header...), body...)
	opaqueAt := binaryOpaqueAt
	if !isBinary {
		name := `"opaque":`
		opaqueAt = bytes.Index(frame, []byte(name+strconv.Itoa(opaqueBase))) + len(name)
	}
	return &request{frame, opaqueAt, isBinary, placesOf(frame, []byte(uniqueMark))}
}

func jsonHeader(code int, ext fields) []byte {
	encoded, err := json.Marshal(struct {
		Code     int    `json:"code"`
		Ext      fields `json:"extFields"`
		Flag     int    `json:"flag"`
		Language string `json:"language"`
		Opaque   int    `json:"opaque"`
		Notation string `json:"serializeTypeCurrentRPC"`
		Version  int    `json:"version"`
	}{code, ext, 0, "GO", opaqueBase, "JSON", clientVersion})
	if err != nil {
		panic(err)
	}
	return encoded
}

func rocketmqHeader(code int, ext fields) []byte {
	names := make([]string, 0, len(ext))
	for name := range ext {
		names = append(names, name)
	}
	sort.Strings(names)
	var entries []byte
	for _, name := range names {
		entries = binary.BigEndian.AppendUint16(entries, uint16(len(name)))
		entries = append(entries, name...)
		entries = binary.BigEndian.AppendUint32(entries, uint32(len(ext[name])))
		entries = append(entries, ext[name]...)
	}
	header := binary.BigEndian.AppendUint16(nil, uint16(code))
	header = append(header, languageGo)
	header = binary.BigEndian.AppendUint16(header, clientVersion)
	header = binary.BigEndian.AppendUint32(header, opaqueBase)
	header = append(header, make([]byte, 8)...) // no flag, no remark
	header = binary.BigEndian.AppendUint32(header, uint32(len(entries)))
	return append(header, entries...)
}

// numbered returns the frame with this number as its opaque one.
func (r *request) numbered(number int) []byte {
	if r.isBinary {
		binary.BigEndian.PutUint32(r.frame[r.opaqueAt:], uint32(opaqueBase+number))
	} else {
		strconv.AppendInt(r.frame[r.opaqueAt:r.opaqueAt], int64(opaqueBase+number), 10)
	}
	return r.frame
}

func placesOf(frame, mark []byte) []int {
	var places []int
	for start := 0; ; {
		at := bytes.Index(frame[start:], mark)
		if at < 0 {
			return places
		}
		places = append(places, start+at)
		start += at + len(mark)
	}
}

// setUnique gives each message an id of its own, counted from this one on.
func (r *request) setUnique(id uint64) {
	const digits = "0123456789ABCDEF"
	for _, at := range r.uniqueAt {
		rest := id
		for place := at + len(uniqueMark) - 1; place >= at; place-- {
			r.frame[place] = digits[rest&15]
			rest >>= 4
		}
		id++
	}
}

// answer is what a load has to know of an answer.
type answer struct {
	code   int
	number int
	body   []byte
	offset int
}

type answerReader struct {
	from *bufio.Reader
	held []byte
}

func newAnswerReader(from io.Reader, size int) *answerReader {
	return &answerReader{from: bufio.NewReaderSize(from, size)}
}

// next returns the next answer; its body is good until the one after it is read.
func (r *answerReader) next() (answer, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(r.from, prefix[:]); err != nil {
		return answer{}, err
	}
	size := int(binary.BigEndian.Uint32(prefix[:])) - 4
	word := binary.BigEndian.Uint32(prefix[4:])
	headerSize := int(word &^ (0xff << 24))
	if size < headerSize || size > 64<<20 {
		return answer{}, fmt.Errorf("a frame of %d bytes with a header of %d", size, headerSize)
	}
	if cap(r.held) < size {
		r.held = make([]byte, 2*size)
	}
	frame := r.held[:size]
	if _, err := io.ReadFull(r.from, frame); err != nil {
		return answer{}, err
	}
	header := frame[:headerSize]
	got := answer{body: frame[headerSize:], offset: -1}
	if word&binaryHeader != 0 {
		got.code = int(binary.BigEndian.Uint16(header))
		got.number = int(binary.BigEndian.Uint32(header[5:])) - opaqueBase
		return got, nil
	}
	got.code = numberBehind(header, `"code":`)
	got.number = numberBehind(header, `"opaque":`) - opaqueBase
	got.offset = numberBehind(header, `"offset":"`)
	return got, nil
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
