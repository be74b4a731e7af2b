"""Everything that puts messages into a store, and what tells how far the disk has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.model.message import MessageBatch, PutMessage
    from flintmq.model.steps import Steps
    from flintmq.store.append_group.sends import AppendGroup, AppendPosition, Sends
    from flintmq.store.appending.appender import Appender
    from flintmq.store.appending.batch_preparation import PreparedBatch
    from flintmq.store.appending.group_appender import GroupAppender, NotAppended
    from flintmq.store.config import StoreConfig
    from flintmq.store.dispatch import Dispatcher
    from flintmq.store.log.log_flusher import LogFlusher
    from flintmq.store.results import PutResult, PutStatus

DISPATCH_EVERY: Final = 64
"""A put dispatches by itself once this many records wait, whoever forgot to."""


class StoreWriter:
    """Appends messages and sees to it that the dispatcher does not fall behind."""

    def __init__(
        self,
        config: StoreConfig,
        appender: Appender,
        groups: GroupAppender,
        dispatcher: Dispatcher,
        flusher: LogFlusher,
    ) -> None:
        self._config = config
        self._appender = appender
        self._groups = groups
        self._dispatcher = dispatcher
        self._flusher = flusher

    def put(self, message: PutMessage) -> PutResult:
        """Append a message; PUT_OK means in the log, not yet on the disk."""
        result = self._appender.put(message)
        if self._dispatcher.waiting >= DISPATCH_EVERY:
            self._dispatcher.run()
        return result

    def put_batch(self, batch: MessageBatch) -> PutResult:
        """Append all messages of a batch, or none."""
        result = self._appender.put_batch(batch)
        if self._dispatcher.waiting >= DISPATCH_EVERY:
            self._dispatcher.run()
        return result

    def prepare_batch(self, batch: MessageBatch) -> Steps[PreparedBatch | PutResult]:
        """Make a batch ready to be put in steps between which others can be served.

        Return why not, if it is refused.
        """
        return self._appender.prepare_batch(batch)

    def put_prepared(self, prepared: PreparedBatch) -> PutResult:
        """Append all messages of a batch that was made ready, or none; the caller dispatches."""
        return self._appender.put_prepared(prepared)

    def append_group(self, sends: Sends, store_host: bytes) -> AppendGroup | NotAppended:
        """Append plain sends together; NotAppended means that nothing was done, and to use ``put``.

        In the log, not yet on the disk: `when_flushed` tells, up to the end of the group.
        """
        return self._groups.append(sends, store_host)

    def append_encoded(
        self,
        encode: Callable[[AppendPosition], AppendGroup],
        store_host: bytes,
        *,
        appended: Callable[[AppendGroup], None] | None = None,
    ) -> AppendGroup | NotAppended:
        """Append a group that somebody else encodes; see `append_group`.

        ``appended`` is told as soon as it is in the log, before queues and index follow.
        """
        return self._groups.append_by(encode, store_host, appended=appended)

    def dispatch(self) -> int:
        """Bring what became readable into queues and index; return how many records."""
        return self._dispatcher.run() if self._dispatcher.has_waiting else 0

    def when_flushed(self, offset: int, done: Callable[[PutStatus, str], None]) -> None:
        """Call ``done(status, reason)`` once the log is flushed up to ``offset`` or cannot be.

        The call may come from the flushing thread.
        """
        self._flusher.when_flushed(offset, done, timeout_ms=self._config.sync_flush_timeout_ms)
