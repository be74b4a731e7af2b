"""A disk whose syncs do not return."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flintmq.store.message_store import MessageStore


@contextmanager
def slow_disk(store: MessageStore) -> Iterator[threading.Event]:
    """Let the syncs of the log wait while this lasts; the event is set when one has begun."""
    file = store.log.files.last
    assert file is not None
    begun, may_end = threading.Event(), threading.Event()
    sync = file.region.sync

    def wait_and_sync() -> None:
        begun.set()
        assert may_end.wait(30)
        sync()

    file.region.sync = wait_and_sync  # type: ignore[method-assign]
    try:
        yield begun
    finally:
        may_end.set()
        file.region.sync = sync  # type: ignore[method-assign]
