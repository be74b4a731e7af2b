"""Writes the state of a table in a thread, and tells who waits for it when it is on the disk.

A table changes on the event loop.  Encoding and syncing a large state takes longer than a turn of
the loop may last, so both are done in a thread, from a snapshot.  What changes meanwhile is written
next: however fast changes come, one write is under way and at most one more follows it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from flintmq.store.errors import StoreError

if TYPE_CHECKING:
    from flintmq.store.files.state_file import StateFile

logger = logging.getLogger(__name__)

Snapshot: TypeAlias = Callable[[], Callable[[], Any]]
"""Copies what a table holds, quickly; what it returns makes JSON of the copy, in a thread."""

Saved: TypeAlias = Callable[[StoreError | None], None]
"""Is called when a change is on the disk, or with the reason why it is not."""


class StateKeeper:
    """The file of one table.

    ``version`` counts the changes.  Versions are written in their order: a write that began earlier
    never replaces a later one, whichever thread it is in.
    """

    def __init__(self, file: StateFile, snapshot: Snapshot, *, is_eager: bool = True) -> None:
        """Write after every change if ``is_eager``, else when `save_in_thread` is called."""
        self.file = file
        self._snapshot = snapshot
        self._is_eager = is_eager
        self.version = 0
        self._saved = 0
        self._written = 0
        self._write_lock = threading.Lock()
        self._waiting: list[tuple[int, Saved]] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def saved_version(self) -> int:
        """The last version that is on the disk."""
        return self._saved

    @property
    def is_saved(self) -> bool:
        """Whether everything is on the disk."""
        return self._saved == self.version

    def changed(self) -> None:
        """Count a change, and have it written soon; without an event loop it is written now."""
        self.version += 1
        if not self._is_eager:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.save_now()
            return
        if self._writer is None:
            self._writer = loop.create_task(self._write_forever(), name="state writer")

    def when_saved(self, done: Saved) -> None:
        """Call ``done`` once all changes up to now are on the disk; at once if they are."""
        if self.is_saved:
            done(None)
        else:
            self._waiting.append((self.version, done))

    async def _write_forever(self) -> None:
        """Write until there is nothing more to write, or the disk refuses."""
        try:
            while not self.is_saved:
                await self.save_in_thread()
        except StoreError as error:
            # The next change tries again, and so does the end of the broker.
            # The error names the file and the reason; a traceback would say no more.
            logger.error("state could not be written: reason=%s", error)  # noqa: TRY400
            self._tell(self.version, error)
        finally:
            self._writer = None

    async def save_in_thread(self) -> bool:
        """Write the state if it has changed; return whether it was written."""
        if self.is_saved:
            return False
        version, encode = self.version, self._snapshot()
        await asyncio.to_thread(self._write, version, encode)
        self._note_saved(version)
        return True

    def save_now(self) -> bool:
        """Write the state if it has changed and wait for it; return whether it was written."""
        if self.is_saved:
            return False
        version = self.version
        self._write(version, self._snapshot())
        self._note_saved(version)
        return True

    def _write(self, version: int, encode: Callable[[], Any]) -> None:
        with self._write_lock:
            if version > self._written:
                self.file.save(encode())
                self._written = version

    def _note_saved(self, version: int) -> None:
        self._saved = max(self._saved, version)
        self._tell(self._saved, None)

    def _tell(self, version: int, failure: StoreError | None) -> None:
        """Call those who wait for a version up to ``version``."""
        told = [done for wanted, done in self._waiting if wanted <= version]
        self._waiting = [one for one in self._waiting if one[0] > version]
        for done in told:
            done(failure)
