"""Answers that wait for the disk, and on a synchronous master for a slave as well.

Both are asked for at the moment of the put, as RocketMQ does: a slave that is missing then is
missing for this message, even if one comes while the disk is waited for.  Where both fail, what
went wrong with the slave is told.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flintmq.broker.waiting.durable_puts import DurablePuts
from flintmq.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.broker.waiting.durable_puts import Done
    from flintmq.broker.waiting.slave_promise import SlavePromise
    from flintmq.store.message_store import MessageStore
    from flintmq.store.results import PutResult


class _ReplicatedPut:
    """A put whose answer waits for the disk and for a slave."""

    __slots__ = ("done", "is_flushed", "is_replicated", "result")

    def __init__(self, result: PutResult, done: Done) -> None:
        self.result = result
        self.done = done
        self.is_flushed = False
        self.is_replicated: bool | None = None
        """Whether a slave has it; None while that is open."""


class ReplicatedPuts(DurablePuts):
    """Calls back once a put is as durable as it was asked to be, and a slave has it."""

    def __init__(
        self, store: MessageStore, slaves: SlavePromise, *, dispatch: Callable[[], None]
    ) -> None:
        super().__init__(store, dispatch=dispatch)
        self._slaves = slaves
        self._slave_timeout_s = store.config.slave_timeout_ms / 1000
        self._slave_timer: asyncio.TimerHandle | None = None

    def when_done(self, result: PutResult, done: Done, *, must_wait: bool = False) -> None:
        """Call ``done`` with the final result, as `DurablePuts` does."""
        if not (result.ok and (result.wait_for_flush or must_wait)):
            super().when_done(result, done, must_wait=must_wait)
            return
        position = result.end_offset
        if not self._slaves.can_promise(position):
            super().when_done(
                result,
                lambda final: done(
                    _but(final, PutStatus.SLAVE_NOT_AVAILABLE, "no slave is near enough")
                ),
                must_wait=must_wait,
            )
            return
        put = _ReplicatedPut(result, done)
        self.waiting_count += result.request_count
        self._idle.clear()
        super().when_done(result, lambda _: self._flushed(put), must_wait=must_wait)
        self._slaves.acknowledged.when_reached(
            position,
            self._loop.time() + self._slave_timeout_s,
            lambda is_reached: self._replicated(put, is_reached=is_reached),
        )
        self._start_slave_timer()

    def _flushed(self, put: _ReplicatedPut) -> None:
        put.is_flushed = True
        if put.is_replicated is not None:
            self._finish_replicated(put)

    def _replicated(self, put: _ReplicatedPut, *, is_reached: bool) -> None:
        put.is_replicated = is_reached
        if put.is_flushed:
            self._finish_replicated(put)

    def _finish_replicated(self, put: _ReplicatedPut) -> None:
        self.waiting_count -= put.result.request_count
        if not self.waiting_count:
            self._idle.set()
        if not put.is_replicated:
            reason = "no slave had it within slaveTimeout"
            _but(put.result, PutStatus.FLUSH_SLAVE_TIMEOUT, reason)
        put.done(put.result)

    def _start_slave_timer(self) -> None:
        deadline = self._slaves.acknowledged.next_deadline
        if self._slave_timer is None and deadline is not None:
            self._slave_timer = self._loop.call_at(deadline, self._expire_slaves)

    def _expire_slaves(self) -> None:
        self._slave_timer = None
        self._slaves.acknowledged.expire(self._loop.time())
        self._start_slave_timer()


def _but(result: PutResult, status: PutStatus, reason: str) -> PutResult:
    """Give a put that was stored another status; one that was not stays as it is."""
    return result.with_status(status, reason) if result.status.stored else result
