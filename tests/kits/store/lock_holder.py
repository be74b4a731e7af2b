"""Another process that holds the lock of a directory, as a broker or another tool would."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from flintmq.offline.store_lock import hold_directory

WAIT_S = 120


def _hold(root: Path, is_held: Event, is_over: Event) -> None:
    with hold_directory(root):
        is_held.set()
        is_over.wait(WAIT_S)


@contextmanager
def held_by_another_process(root: Path) -> Iterator[None]:
    """Have the lock of a directory held by another process."""
    context = multiprocessing.get_context("spawn")
    is_held, is_over = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(root, is_held, is_over))
    process.start()
    try:
        assert is_held.wait(WAIT_S)
        yield
    finally:
        is_over.set()
        process.join()
