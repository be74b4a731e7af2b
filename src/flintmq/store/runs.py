"""Runs: plain messages that came together are appended, queued and indexed together.

What one read of a socket brings to a broker is mostly plain sends.  Taken one by one each pays
for a turn of the lock, two looks at the clock, its own copy into the log and its own way through
the dispatcher.  A run pays once.  It changes nothing else: the files get the same bytes as from
`Appender.put`, and whatever is not plain (a file that ends, a disk that is full, queues that lag
behind) sends the whole run back untouched, to be put message by message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from flintmq.store.batch_columns import NotPlainError
from flintmq.store.run_encoding import RunPlace

if TYPE_CHECKING:
    from flintmq.store.appending import Appender
    from flintmq.store.clock import Clock
    from flintmq.store.commit_log import CommitLog
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.run_encoding import Run
    from flintmq.store.statistics import StoreStatistics


_Placed = TypeVar("_Placed")
Encode: TypeAlias = Callable[["RunPlace"], tuple["Run", _Placed]]
"""Encodes a run for its place; returns it and where its messages go."""


class RunAppender:
    """Appends runs.  It takes turns with the appender, which it belongs to."""

    def __init__(
        self,
        appender: Appender,
        log: CommitLog,
        dispatcher: Dispatcher,
        *,
        statistics: StoreStatistics,
        clock: Clock,
    ) -> None:
        self._appender = appender
        self._log = log
        self._dispatcher = dispatcher
        self._statistics = statistics
        self._clock = clock

    def put(self, encode: Encode[_Placed], store_host: bytes) -> tuple[Run, _Placed] | None:
        """Append what is encoded and make it visible, or do nothing and return None."""
        appender = self._appender
        if appender.may_refuse:
            return None
        # In this order, since dispatching never appends: nobody may come between log and views.
        with self._dispatcher.lock, appender.lock:
            try:
                return self._put(encode, store_host)
            finally:
                appender.began_ms = 0

    def _put(self, encode: Encode[_Placed], store_host: bytes) -> tuple[Run, _Placed] | None:
        tail, dispatcher = self._log.tail, self._dispatcher
        if tail is None or not dispatcher.is_idle:
            return None
        clock, appender = self._clock, self._appender
        began = clock.monotonic()
        appender.began_ms = now = clock.now_ms()
        position = tail.wrote
        place = RunPlace(
            tail.first_offset + position,
            appender.next_offsets,
            now,
            store_host,
            appender.record_size_max,
            appender.body_size_max,
        )
        try:
            run, placed = encode(place)
        except NotPlainError:
            return None
        if not (self._log.has_room(len(run.records)) and dispatcher.can_take(run)):
            return None
        target = tail.view if tail.write_buffer is None else tail.write_buffer
        target[position : position + len(run.records)] = run.records
        tail.wrote = position + len(run.records)
        tail.store_timestamp = now
        for queue, part in run.parts.items():
            appender.next_offsets[queue] = part.end
        dispatcher.take(run)
        each_us = int((clock.monotonic() - began) * 1_000_000) // run.message_count
        for (topic, _), part in run.parts.items():
            self._statistics.record_puts(topic, part.count, part.size, each_us)
        return run, placed
