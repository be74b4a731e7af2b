package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// talk is what is said on one connection.
type talk interface {
	// hasNext tells whether there is a request to write before another answer is taken.
	hasNext() bool
	// next returns the frame of this request, which begins now and is good until the next call, or
	// nothing when the time is over.
	next(until time.Time) []byte
	// take takes an answer.
	take(got answer, arrived time.Time) error
	// missing returns how many answers are still to come.
	missing() int
}

// socket is one end of a connection. Where it does not wait, its Write may take only the first
// bytes or none, and its Read may give none, without an error.
type socket interface {
	io.ReadWriteCloser
}

// line is a connection and the talk on it.
type line struct {
	socket    socket
	address   string
	talk      talk
	answers   answerStream
	unwritten []byte
	until     time.Time
}

// refill writes the requests that the talk has, each by a write of its own as producers do that
// write one at a time, until the socket is full.
func (l *line) refill() error {
	for len(l.unwritten) == 0 && l.talk.hasNext() {
		frame := l.talk.next(l.until)
		if frame == nil {
			return nil
		}
		count, err := l.socket.Write(frame)
		if err != nil {
			return l.lost(err)
		}
		l.unwritten = append(l.unwritten, frame[count:]...)
	}
	return nil
}

// resume goes on where the socket was full.
func (l *line) resume() error {
	count, err := l.socket.Write(l.unwritten)
	if err != nil {
		return l.lost(err)
	}
	l.unwritten = append(l.unwritten[:0], l.unwritten[count:]...)
	return l.refill()
}

// listen reads once. All answers that this completes have arrived when the read returned, whenever
// their turn comes.
func (l *line) listen() error {
	count, err := l.socket.Read(l.answers.room())
	arrived := time.Now()
	if err != nil {
		return l.lost(err)
	}
	l.answers.filled(count)
	for {
		got, isWhole, err := l.answers.next()
		if err == nil && isWhole {
			err = l.talk.take(got, arrived)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.address, err)
		}
		if !isWhole {
			return nil
		}
		if err := l.refill(); err != nil {
			return err
		}
	}
}

// isOver tells whether all is said: a talk that awaits no answer had nothing more to write when the
// last one came.
func (l *line) isOver() bool {
	return l.talk.missing() == 0
}

func (l *line) lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%s has closed the connection, %d answers are missing", l.address, l.talk.missing())
	}
	return fmt.Errorf("%s: %w", l.address, err)
}

// converse holds all talks, each on a connection of its own, and returns how long they took. When
// the time is over it waits for the answers that are under way, but not for long.
func converse[T talk](o options, talks []T) (time.Duration, error) {
	lines := make([]*line, len(talks))
	for number := range lines {
		conn, err := net.Dial("tcp", o.broker(number))
		if err != nil {
			return 0, err
		}
		one := &line{address: o.broker(number), talk: talks[number]}
		if one.socket, err = socketOf(conn); err != nil {
			return 0, err
		}
		defer one.socket.Close()
		lines[number] = one
	}
	began := time.Now()
	until := began.Add(o.duration)
	for _, one := range lines {
		one.until = until
	}
	if err := hold(lines, until.Add(o.patience)); err != nil {
		return 0, err
	}
	took, missing := time.Since(began), 0
	for _, one := range talks {
		missing += one.missing()
	}
	if missing > 0 {
		return 0, fmt.Errorf("%d answers are missing %s after the end", missing, o.patience)
	}
	return took, nil
}

// refusals counts what was refused, and remembers why it was the first time.
type refusals struct {
	count     int
	firstCode int
}

func (r *refusals) refused(code, count int) {
	r.add(refusals{count, code})
}

func (r *refusals) add(other refusals) {
	if r.count == 0 {
		r.firstCode = other.firstCode
	}
	r.count += other.count
}

func (r *refusals) tell(what string) {
	if r.count > 0 {
		fmt.Fprintf(os.Stderr, "load: %d %s were refused, the first with code %d\n", r.count, what, r.firstCode)
	}
}
