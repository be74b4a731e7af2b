"""What a test has left behind: threads, tasks, descriptors, temporary directories."""

import asyncio
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

PATIENCE_S: Final = 5
"""How long something that is ending may take; only a test that fails waits for so long."""

SHARED_THREADS: Final = "flintmq-site"
"""Threads of a broker that several tests share."""

LEAVES_NOTHING: Final = "leaves_nothing"
"""The fixture by which tests say that they are looked after."""


def _descriptors() -> dict[str, str]:
    found = {}
    for one in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a path for each would be slower
        with contextlib.suppress(OSError):
            found[one] = os.readlink(f"/proc/self/fd/{one}")  # noqa: PTH115 - the same
    return found


def _new_descriptors(before: dict[str, str], temporary: Path) -> list[str]:
    return [
        f"descriptor {number}: {target}"
        for number, target in _descriptors().items()
        if before.get(number) != target
        and not target.startswith("/proc/")
        # A broker that several tests share opens files when it likes; its store is elsewhere.
        and ("/store/" not in target or Path(target).is_relative_to(temporary))
    ]


def _new_threads(before: set[threading.Thread]) -> list[str]:
    return [
        f"thread {one.name}"
        for one in threading.enumerate()
        if one not in before and not one.name.startswith(SHARED_THREADS)
    ]


def _patiently(look: Callable[[], list[str]]) -> list[str]:
    """Return what is found, after it had time to go away."""
    end = time.monotonic() + PATIENCE_S
    while (found := look()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


@contextlib.contextmanager
def nothing_left(temporary: Path) -> Iterator[None]:
    """Fail if the block leaves a thread, a descriptor, or anything in a temporary directory."""
    threads, descriptors = set(threading.enumerate()), _descriptors()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(temporary))
        yield
    left = _patiently(lambda: _new_threads(threads))
    left += _patiently(lambda: _new_descriptors(descriptors, temporary))
    left += _patiently(lambda: [f"temporary {one.name}" for one in temporary.iterdir()])
    if left:
        pytest.fail("left behind: " + ", ".join(left))


def _others() -> set[asyncio.Task[object]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def no_task_left() -> None:
    """Fail if other tasks than the current one are still there after a while."""
    end = time.monotonic() + PATIENCE_S
    while (left := _others()) and time.monotonic() < end:  # noqa: ASYNC110 - tasks of all kinds
        await asyncio.sleep(0.01)
    if left:
        pytest.fail("left behind: " + ", ".join(map(repr, left)))
