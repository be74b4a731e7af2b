package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
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
	// With the base it fits into 31 bits.
	numberLimit = 1_000_000_000
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
