"""The next commit-log file, made before it is needed.

Reserving a gigabyte takes the disk longer than an append may wait.  So while one file is being
filled a thread makes the following one; whoever rolls the log finds it ready.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintmq.store.clock import Clock
from flintmq.store.errors import StoreClosedError, StoreError
from flintmq.store.files.interface import Files, MappedRegion, staging_directory

if TYPE_CHECKING:
    from flintmq.store.files.transient_pool import TransientPool

logger = logging.getLogger(__name__)

REQUEST_COUNT_MAX: Final = 2
"""The file that is wanted and the one after it."""

WAIT_MS: Final = 5000
"""How long a request waits for its file."""

FIRST_PAGES_SIZE: Final = 2 << 20
"""Bytes of a file made ahead that are ready to be written when the log rolls to it."""

RETRY_AFTER_MS: Final = 1000
"""How long a failure is remembered before the same file is tried again."""


class _Request:
    """A file that is wanted, being made, ready, or could not be made."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.region: MappedRegion | None = None
        self.error: StoreError | None = None
        self.failed_at = 0.0

    @property
    def is_open(self) -> bool:
        return self.region is None and self.error is None


class Allocator:
    """Makes commit-log files durably, one ahead of the one that is asked for.

    ``allocate_once`` is the work; by default a thread started by the first request repeats it.
    With ``threads=False`` a request makes its file itself and nothing ahead.  With ``by_hand``
    files are made ahead, but only when the caller runs ``allocate_once``: for tests.
    """

    def __init__(
        self,
        *,
        files: Files,
        clock: Clock,
        threads: bool = True,
        by_hand: bool = False,
        warm: bool = False,
        pool: TransientPool | None = None,
        fail_fast: bool = False,
        wait_ms: int = WAIT_MS,
        roll_wait_ms: int | None = None,
    ) -> None:
        """Describe the allocator; nothing starts yet.

        ``warm`` writes every new file once so that its pages are in memory.  With ``fail_fast`` no
        more files are made than the ``pool`` has buffers for: a request beyond that gets None.
        ``roll_wait_ms`` is how long a request waits for a file that is being made ahead; if it is
        not given, that is no different from others.
        """
        assert threads or not by_hand, "without threads there is nothing to do by hand"
        self._files = files
        self._clock = clock
        self._ahead = threads
        self._warm = warm
        self._pool = pool if fail_fast else None
        self._wait_seconds = wait_ms / 1000
        self._may_wait = roll_wait_ms is None
        self._roll_wait_seconds = (wait_ms if roll_wait_ms is None else roll_wait_ms) / 1000
        self._late: _Request | None = None
        """The request that was not ready in time."""
        # By name, not by path: when a directory has become full in between, the file that was made
        # there ahead is used all the same.  A second one of its name would make the load fail.
        self._requests: dict[str, _Request] = {}
        self._changed = threading.Condition()
        self._given_out = ""
        """The name of the file that was asked for last and is there: none before it is missing."""
        self._closed = False
        self._starts_thread = threads and not by_hand
        self._thread: threading.Thread | None = None
        self._directories: set[Path] = set()

    @property
    def is_late(self) -> bool:
        """Whether the file that was asked for last was not ready in time, and still is not."""
        late = self._late
        return late is not None and late.is_open and not self._closed

    def request(self, path: Path, following: Path, size: int) -> MappedRegion | None:
        """Return the new file ``path``, and let ``following`` be made meanwhile.

        None when it is not ready in time, or may not be made for lack of buffers; a later call can
        collect it.  What went wrong with this file is raised, and tried again a little later.
        """
        with self._changed:
            if self._closed:
                raise StoreClosedError("the allocator")
            self._forget_all_but(path.name, following.name)
            is_ahead = path.name in self._requests
            wanted = self._register(path, size)
            if wanted is None:
                logger.warning("no buffer is left for another file: file=%s", path)
                return None
            if self._ahead:
                self._register(following, size)
            self._changed.notify_all()
        if not self._ahead:
            self._make(wanted)
        elif self._starts_thread:
            self._start_thread()
        return self._collect(wanted, self._roll_wait_seconds if is_ahead else self._wait_seconds)

    def prepare(self, path: Path, size: int, ready_size: int = 0) -> None:
        """Let a file be made that will be asked for soon; never waits.

        Only a thread that may wait has bytes of it made ready to be written, besides those that
        always are: it waits as long as for any file.
        """
        with self._changed:
            # The log may have gone on to this file while another thread was on its way here.
            if self._closed or not self._ahead or path.name <= self._given_out:
                return
            if path.name not in self._requests:
                self._register(path, size)
                self._changed.notify_all()
        if self._starts_thread:
            self._start_thread()
        if ready_size:
            self._make_ready(path, ready_size)

    def _make_ready(self, path: Path, size: int) -> None:
        with self._changed:
            request = self._requests.get(path.name)
            if request is not None:
                self._wait_until_made(request, self._wait_seconds)
        if request is not None and request.region is not None:
            # Not under the lock, for which somebody may wait who must not.  One that is closed
            # meanwhile has no pages to be made ready.
            request.region.prepare_pages(0, size)

    def is_awaited(self, path: Path, following: Path, size: int) -> bool:
        """Ask for a file without waiting; return whether it is still being made.

        ``is_late`` tells from then on when it is there.  An owner that may wait is told that it
        need not ask so.
        """
        with self._changed:
            if self._closed or not self._ahead or self._may_wait:
                return False
            wanted = self._register(path, size)
            if wanted is None or not wanted.is_open:
                return False
            self._register(following, size)
            self._late = wanted
            self._changed.notify_all()
        if self._starts_thread:
            self._start_thread()
        return True

    def _register(self, path: Path, size: int) -> _Request | None:
        request = self._requests.get(path.name)
        if request is None:
            if len(self._requests) >= self._allowance():
                return None
            request = self._requests[path.name] = _Request(path, size)
        elif request.error is not None and self._is_stale(request):
            request.error = None
        assert request.size == size, (request.size, size)
        return request

    def _forget_all_but(self, *names: str) -> None:
        """Remove what was made for an end of the log that was cut off since."""
        for name, request in list(self._requests.items()):
            if name not in names and not request.is_open:
                del self._requests[name]
                self._discard(request.region)

    def _allowance(self) -> int:
        if self._pool is None:
            return REQUEST_COUNT_MAX
        return min(REQUEST_COUNT_MAX, self._pool.free_count)

    def _is_stale(self, request: _Request) -> bool:
        past_ms = (self._clock.monotonic() - request.failed_at) * 1000
        return not self._ahead or past_ms >= RETRY_AFTER_MS

    def _collect(self, request: _Request, wait_seconds: float) -> MappedRegion | None:
        with self._changed:
            # Whoever asks again for a file that was late does not wait again.
            if self._late is not request or self._may_wait:
                self._wait_until_made(request, wait_seconds)
            if request.error is not None:
                raise request.error.with_traceback(None)
            if self._requests.get(request.path.name) is not request:
                raise StoreClosedError("the allocator")
            if request.region is not None:
                del self._requests[request.path.name]
                self._late, self._given_out = None, request.path.name
            elif self._late is not request:
                self._late = request
                logger.warning("file not made in time: file=%s", request.path)
            return request.region

    def _wait_until_made(self, request: _Request, seconds: float) -> None:
        """Wait until a file is there or cannot be made; the caller holds the lock."""
        self._changed.wait_for(lambda: not request.is_open or self._closed, timeout=seconds)

    def allocate_once(self) -> bool:
        """Make one file that was asked for, the first of them; return False when there is none."""
        with self._changed:
            waiting = [request for request in self._requests.values() if request.is_open]
        if not waiting:
            return False
        self._make(min(waiting, key=lambda request: (-request.size, request.path.name)))
        return True

    def _make(self, request: _Request) -> None:
        region: MappedRegion | None = None
        error: StoreError | None = None
        try:
            self._discard_leftovers(request.path.parent)
            region = self._files.create_durable(request.path, request.size)
            if self._warm:
                region.warm()
                region.sync()
            elif self._ahead:
                region.prepare_pages(0, FIRST_PAGES_SIZE)
        except StoreError as failure:
            logger.warning("file could not be made: file=%s reason=%s", request.path, failure)
            error = failure
        except Exception as failure:
            logger.exception("file could not be made: file=%s", request.path)
            error = StoreError(f"{request.path}: {failure}")
        with self._changed:
            if error is None:
                request.region = region
            else:
                self._discard(region)
                request.failed_at = self._clock.monotonic()
                request.error = error
            self._changed.notify_all()

    def _discard_leftovers(self, directory: Path) -> None:
        """Remove, once for each directory, what a crash has left half made beside it."""
        if directory in self._directories:
            return
        staging = staging_directory(directory)
        for entry in self._files.list(staging):
            self._files.remove(staging / entry.name)
            logger.warning("half-made file removed: file=%s", staging / entry.name)
        self._directories.add(directory)

    def _discard(self, region: MappedRegion | None) -> None:
        """Remove a file nobody will use; one that stays is empty, and recovery removes it."""
        if region is None:
            return
        try:
            region.close()
            self._files.remove(region.path, missing_ok=True)
            self._files.sync_directory(region.path.parent)
        except StoreError:
            logger.exception("unused file could not be removed: file=%s", region.path)

    # -- the thread --------------------------------------------------------------------------

    def _start_thread(self) -> None:
        # Of two threads each would make the same file, and the one made first would be replaced
        # on the disk while records go into it.
        with self._changed:
            if self._thread is not None or self._closed:
                return
            self._thread = threading.Thread(target=self._run, name="flintmq-allocator", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._wait_for_work():
            self.allocate_once()

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or any(r.is_open for r in self._requests.values())
            )
            return not self._closed

    def close(self) -> None:
        """Stop, and remove the files that were made and never used; a second call does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._changed:
            unused = [request.region for request in self._requests.values()]
            self._requests.clear()
        for region in unused:
            self._discard(region)
        for directory in self._directories:
            self._files.remove_directory(staging_directory(directory))
        self._directories.clear()
