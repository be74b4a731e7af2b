//go:build !portable

package main

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"time"
)

// descriptor is a socket that does not wait and that the runtime does not know.
type descriptor int

// socketOf returns a socket of the same connection. The runtime is asked to forget the connection:
// otherwise it would have a thread woken by each answer.
func socketOf(conn net.Conn) (socket, error) {
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var copied int
	var failure error
	if err := raw.Control(func(own uintptr) { copied, failure = syscall.Dup(int(own)) }); err != nil {
		return nil, err
	}
	if failure != nil {
		return nil, failure
	}
	return descriptor(copied), syscall.SetNonblock(copied, true)
}

func (d descriptor) Read(into []byte) (int, error) {
	count, err := syscall.Read(int(d), into)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return 0, nil
	case err != nil:
		return 0, err
	case count == 0:
		return 0, io.EOF
	}
	return count, nil
}

func (d descriptor) Write(frame []byte) (int, error) {
	count, err := syscall.Write(int(d), frame)
	if err == syscall.EAGAIN || err == syscall.EINTR {
		return 0, nil
	}
	return max(count, 0), err
}

func (d descriptor) Close() error {
	return syscall.Close(int(d))
}

// poll is what the kernel is asked for the lines that can go on.
type poll struct {
	descriptor int
	lines      []*line
	isFull     []bool
	open       int
}

// hold serves all lines by one thread until they are over, at most until the last moment. The
// runtime would ask sockets every 10 ms only while its goroutines have enough to do, and an answer
// would wait that long here.
func hold(lines []*line, last time.Time) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	made, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	defer syscall.Close(made)
	p := &poll{descriptor: made, lines: lines, isFull: make([]bool, len(lines)), open: len(lines)}
	for number, one := range lines {
		if err := p.control(syscall.EPOLL_CTL_ADD, number, syscall.EPOLLIN); err != nil {
			return err
		}
		if err := p.after(number, one.refill()); err != nil {
			return err
		}
	}
	events := make([]syscall.EpollEvent, len(lines))
	for p.open > 0 {
		rest := time.Until(last)
		if rest < 0 {
			return nil
		}
		count, err := syscall.EpollWait(made, events, int(rest.Milliseconds())+1)
		if err != nil && err != syscall.EINTR {
			return err
		}
		for _, event := range events[:max(count, 0)] {
			if err := p.serve(int(event.Fd), event.Events); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *poll) serve(number int, events uint32) error {
	one := p.lines[number]
	var err error
	if events&^syscall.EPOLLOUT != 0 {
		err = one.listen()
	}
	if err == nil && len(one.unwritten) > 0 && events&syscall.EPOLLOUT != 0 {
		err = one.resume()
	}
	return p.after(number, err)
}

// after has the kernel told what a line waits for from now on.
func (p *poll) after(number int, err error) error {
	one := p.lines[number]
	switch isFull := len(one.unwritten) > 0; {
	case err != nil:
		return err
	case one.isOver():
		p.open--
		return p.control(syscall.EPOLL_CTL_DEL, number, 0)
	case isFull == p.isFull[number]:
		return nil
	case isFull:
		p.isFull[number] = true
		return p.control(syscall.EPOLL_CTL_MOD, number, syscall.EPOLLIN|syscall.EPOLLOUT)
	default:
		p.isFull[number] = false
		return p.control(syscall.EPOLL_CTL_MOD, number, syscall.EPOLLIN)
	}
}

func (p *poll) control(operation, number int, events uint32) error {
	// The number of the line stands where the kernel keeps what it gives back.
	event := syscall.EpollEvent{Events: events, Fd: int32(number)}
	return syscall.EpollCtl(p.descriptor, operation, int(p.lines[number].socket.(descriptor)), &event)
}
