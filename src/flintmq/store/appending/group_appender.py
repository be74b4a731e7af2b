"""Append groups: plain sends that came together are appended, queued and indexed together.

What one read of a socket brings to a broker is mostly plain sends.  Put one by one, each pays for
a turn of the lock, two looks at the clock, its own copy into the log and its own way through the
dispatcher.  A group pays once.  Nothing else differs: the files get the same bytes as from
`Appender.put`.  Where a group cannot be appended (a file that ends, a disk that is full, queues
that lag behind, a send that is special), nothing is done, and the sends are put one by one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from flintmq.store.append_group.sends import AppendPosition, NotPlainError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flintmq.store.append_group.sends import AppendGroup, GroupEncoder, Sends

    EncodesAt: TypeAlias = Callable[[AppendPosition], AppendGroup]
    TellsOf: TypeAlias = Callable[[AppendGroup], None]
    from flintmq.store.appending.appender import Appender
    from flintmq.store.clock import Clock
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.log.commit_log import CommitLog
    from flintmq.store.store_statistics import StoreStatistics


class NotAppended(NamedTuple):
    """The answer for sends that were not appended as a group; nothing has changed."""

    special_rows: Sequence[int] = ()
    """The numbers of the sends that are special, if they are the reason: the sends between them
    can still be appended.  Without any, no group can be appended just now."""
    is_special: bool = False
    """Whether some are special, even if nobody has told which."""


class GroupAppender:
    """Appends groups.  It takes turns with the appender, which it belongs to."""

    def __init__(
        self,
        appender: Appender,
        encoder: GroupEncoder,
        log: CommitLog,
        dispatcher: Dispatcher,
        *,
        statistics: StoreStatistics,
        clock: Clock,
    ) -> None:
        self._appender = appender
        self._encoder = encoder
        self._log = log
        self._dispatcher = dispatcher
        self._statistics = statistics
        self._clock = clock

    def append(self, sends: Sends, store_host: bytes) -> AppendGroup | NotAppended:
        """Append sends as the group that the store's encoder makes of them; see `append_by`."""
        return self.append_by(functools.partial(self._encoder.encode, sends), store_host)

    def append_by(
        self, encode: EncodesAt, store_host: bytes, *, appended: TellsOf | None = None
    ) -> AppendGroup | NotAppended:
        """Append the group that ``encode`` gives and make it visible, or do nothing.

        With synchronous flush it is visible once it is on the disk, with the pool once it is in its
        file.  ``appended`` is told as soon as the group is in the log, before the views follow.
        """
        appender = self._appender
        if appender.may_refuse:
            return NotAppended()
        # In this order, since dispatching never appends: nobody may come between log and views.
        with self._dispatcher.lock, appender.lock:
            try:
                return self._append(encode, store_host, appended)
            finally:
                appender.began_ms = 0

    def _append(
        self, encode: EncodesAt, store_host: bytes, appended: TellsOf | None
    ) -> AppendGroup | NotAppended:
        tail, dispatcher = self._log.tail, self._dispatcher
        if tail is None or not dispatcher.takes_groups:
            return NotAppended()
        clock, appender = self._clock, self._appender
        began = clock.monotonic()
        appender.began_ms = now = clock.now_ms()
        wrote = tail.wrote
        position = AppendPosition(
            tail.first_offset + wrote,
            appender.next_offsets,
            now,
            store_host,
            appender.record_size_max,
            appender.body_size_max,
            dispatcher.run_limit.is_stepwise,
        )
        try:
            group = encode(position)
        except NotPlainError as error:
            return NotAppended(error.rows, is_special=True)
        size = len(group.records)
        waits = self._log.reads_wait
        has_room = dispatcher.has_queues if waits else dispatcher.has_room
        in_steps = dispatcher.run_limit.is_for_steps(
            key_count=group.keys.count, is_compiled=group.is_compiled
        )
        if in_steps:
            has_room = dispatcher.has_queues
        if not (self._log.has_room(size) and has_room(group)):
            return NotAppended()
        target = tail.view if tail.write_buffer is None else tail.write_buffer
        target[wrote : wrote + size] = group.records
        tail.wrote = wrote + size
        tail.store_timestamp = now
        for queue, part in group.slices.items():
            appender.next_offsets[queue] = part.end
        each_us = int((clock.monotonic() - began) * 1_000_000) // group.message_count
        for (topic, _), part in group.slices.items():
            self._statistics.record_puts(topic, part.count, part.size, each_us)
        try:
            if appended is not None:
                appended(group)
        finally:
            if in_steps:
                dispatcher.read_back()
            elif waits:
                dispatcher.add_group(group)
            else:
                dispatcher.dispatch_group(group)
        return group
