//go:build !linux || portable

package main

import (
	"errors"
	"net"
	"os"
	"time"
)

func socketOf(conn net.Conn) (socket, error) {
	return conn, nil
}

// hold serves each line by a goroutine until it is over, at most until the last moment.
func hold(lines []*line, last time.Time) error {
	ends := make(chan error, len(lines))
	for _, one := range lines {
		go func(one *line) {
			ends <- speak(one, last)
		}(one)
	}
	for range lines {
		if err := <-ends; err != nil {
			return err
		}
	}
	return nil
}

func speak(one *line, last time.Time) error {
	if err := one.socket.(net.Conn).SetDeadline(last); err != nil {
		return err
	}
	err := one.refill()
	for err == nil && !one.isOver() {
		err = one.listen()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}
