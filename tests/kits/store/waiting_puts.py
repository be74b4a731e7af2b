"""Puts that wait for the disk: a broker answers later instead, when the store tells it."""

import contextlib
import threading

from flintmq.model.message import MessageBatch, PutMessage
from flintmq.store.errors import FlushFailedError
from flintmq.store.message_store import MessageStore
from flintmq.store.results import PutResult, PutStatus


def put_durably(store: MessageStore, message: PutMessage | MessageBatch) -> PutResult:
    """Append a message or batch and wait as long as its promise asks for.

    With synchronous flush this returns PUT_OK only when the message is on stable storage (unless
    its WAIT property says false), FLUSH_DISK_TIMEOUT when it is in the log but the disk took too
    long, and SERVICE_NOT_AVAILABLE when the disk has failed.
    """
    result = store.put_batch(message) if isinstance(message, MessageBatch) else store.put(message)
    if result.ok and result.wait_for_flush:
        status, reason = wait_flushed(store, result.end_offset)
        if status is not PutStatus.PUT_OK:
            result.with_status(status, reason)
    store.dispatcher.run()
    return result


def wait_flushed(store: MessageStore, offset: int) -> tuple[PutStatus, str]:
    """Wait until the log is flushed up to ``offset``; return how that ended."""
    if not store._services:
        with contextlib.suppress(FlushFailedError):
            store.flush()
    outcome: list[tuple[PutStatus, str]] = []
    finished = threading.Event()

    def done(status: PutStatus, reason: str) -> None:
        outcome.append((status, reason))
        finished.set()

    store.when_flushed(offset, done)
    if not finished.wait(store.config.sync_flush_timeout_ms / 1000):
        return PutStatus.FLUSH_DISK_TIMEOUT, "not flushed within syncFlushTimeout"
    return outcome[0]
