"""A socket that threads and a loop share: only whole frames, one after the other."""

import ctypes
import operator
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from flintmq.remoting.shared_socket import SharedSocket

FRAME: Final = b"a whole frame"
WAIT_S: Final = 20


@contextmanager
def socket_and_peer() -> Iterator[tuple[SharedSocket, socket.socket]]:
    """Give a socket that threads may use, and the one at the other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shared = SharedSocket(ours.fileno())
        shared.release()
        yield shared, theirs
        shared.close()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def fill(shared: SharedSocket) -> tuple[bytes, bytes]:
    """Send until there is no room; return what has left, and what has not."""
    sent, large = b"", os.urandom(1 << 20)
    while not shared.has_rest:
        assert shared.send(large)
        sent += large
    rest = shared.take_rest()
    return sent.removesuffix(rest), rest


def read_all(peer: socket.socket) -> bytes:
    peer.setblocking(False)
    read = b""
    try:
        while chunk := peer.recv(1 << 20):
            read += chunk
    except BlockingIOError:
        pass
    return read


def test_a_socket_is_reserved_until_it_is_released() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        shared = SharedSocket(ours.fileno())
        assert not shared.send(FRAME)
        shared.release()
        assert shared.send(FRAME)
        assert theirs.recv(100) == FRAME
        shared.close()


def test_nothing_is_sent_while_the_loop_has_reserved_the_socket() -> None:
    with socket_and_peer() as (shared, peer):
        assert shared.reserve()
        assert shared.reserve()
        assert not shared.send(FRAME)
        shared.release()
        assert shared.send(FRAME)
        assert read_all(peer) == FRAME


def test_what_has_no_room_stays_before_all_that_follows() -> None:
    with socket_and_peer() as (shared, peer):
        large = os.urandom(4 << 20)
        assert shared.send(large)
        assert shared.has_rest
        assert not shared.send(FRAME)
        shared.release()
        assert not shared.send(FRAME), "the shared was opened while a rest had not left"
        assert shared.reserve(), "the loop cannot send the rest"
        assert read_all(peer) + shared.take_rest() == large
        shared.release()
        assert shared.send(FRAME)


def test_a_frame_for_which_there_is_no_room_at_all_is_a_rest() -> None:
    with socket_and_peer() as (shared, peer):
        sent, _ = fill(shared)
        shared.release()
        assert shared.send(FRAME)
        assert shared.take_rest() == FRAME
        assert read_all(peer) == sent


def test_a_peer_that_has_gone_is_for_the_loop_to_notice() -> None:
    with socket_and_peer() as (shared, peer):
        peer.close()
        assert shared.send(FRAME)
        assert shared.take_rest() == FRAME


def test_a_closed_socket_stays_reserved_and_keeps_no_descriptor() -> None:
    before = open_descriptors()
    with socket_and_peer() as (shared, _):
        shared.close()
        shared.release()
        assert not shared.send(FRAME)
        shared.close()
    assert open_descriptors() == before


def test_the_loop_learns_of_a_rest_that_a_thread_left_while_it_waited() -> None:
    """The loop waited for the thread, gave up, and forgot that the thread had left it a rest."""
    with socket_and_peer() as (shared, peer):
        large = os.urandom(4 << 20)
        stop = threading.Event()
        failures: list[str] = []

        def reserve_and_release() -> None:
            while not stop.is_set():
                if shared.reserve():
                    if shared.has_rest:
                        return
                    shared.release()
            failures.append("the loop has never had the rest")

        loop = threading.Thread(target=reserve_and_release)
        loop.start()
        while not shared.send(large):
            pass
        loop.join(WAIT_S)
        stop.set()
        loop.join(WAIT_S)
        assert not failures
        assert read_all(peer) + shared.take_rest() == large


def test_a_signal_handler_never_finds_a_thread_sending() -> None:
    """A handler that waits for the loop would wait for ever: the loop would wait for the shared."""
    found: list[bool] = []
    with socket_and_peer() as (shared, peer):

        def handle(*_: object) -> None:
            found.append(shared.reserve())
            if found[-1]:
                shared.release()

        before = signal.signal(signal.SIGALRM, handle)
        try:
            while len(found) < 500:
                # The handler runs wherever the next lines are by then.
                signal.setitimer(signal.ITIMER_REAL, 0.00001)
                for _ in range(4):
                    shared.send(FRAME)
                read_all(peer)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert all(found)


@contextmanager
def raising_while_sent(shared: SharedSocket, error: type[BaseException]) -> Iterator[None]:
    """Have a signal come while a frame is sent, whose handler then raises an error."""

    def handle(*_: object) -> None:
        raise error

    come = ctypes.CDLL(None)["raise"]
    come.restype = operator.not_  # It returns zero, which would mean that the lock is not ours.
    enter, before = shared._enter, signal.signal(signal.SIGALRM, handle)
    assert shared._lock.acquire(blocking=False)
    shared._enter = partial(come, int(signal.SIGALRM))
    try:
        with pytest.raises(error):
            yield
    finally:
        shared._enter = enter
        signal.signal(signal.SIGALRM, before)


ERRORS_OF_HANDLERS: Final = pytest.mark.parametrize("error", [TimeoutError, KeyboardInterrupt])


@ERRORS_OF_HANDLERS
def test_what_a_signal_handler_raises_is_no_lack_of_room(error: type[BaseException]) -> None:
    """An alarm that raises TimeoutError was swallowed, and what had been sent was sent again."""
    with socket_and_peer() as (shared, peer):
        with raising_while_sent(shared, error):
            shared.send(FRAME)
        assert not shared.has_rest
        assert shared.send(FRAME), "the socket was not given back"
        assert shared.reserve()
        assert read_all(peer) == 2 * FRAME


@ERRORS_OF_HANDLERS
def test_a_frame_that_a_signal_handler_breaks_off_is_finished_by_the_loop(
    error: type[BaseException],
) -> None:
    with socket_and_peer() as (shared, peer):
        large = os.urandom(4 << 20)
        with raising_while_sent(shared, error):
            shared.send(large)
        assert shared.reserve(), "the loop would give the connection up"
        assert read_all(peer) + shared.take_rest() == large


def test_it_is_told_whether_a_frame_may_be_broken_off_at_the_end() -> None:
    with socket_and_peer() as (shared, _):
        assert shared.close()
    with socket_and_peer() as (shared, _):
        assert shared._lock.acquire(blocking=False)
        assert not shared.close()
