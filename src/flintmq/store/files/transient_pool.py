"""Write buffers outside the page cache, handed out one per commit-log file."""

import contextlib
import logging
import mmap
import threading
from collections import deque
from typing import Final

from flintmq.store.errors import StoreError

logger = logging.getLogger(__name__)

LOW_WATER_RATIO: Final = 0.4
"""Below this share of free buffers every loan is reported."""


class TransientPool:
    """A fixed number of anonymous buffers, each as large as one commit-log file.

    Records are appended to a buffer and later committed to the file by a system call, so that an
    append never meets the write-back of the page cache.  Buffers are not cleared: a borrower reads
    only what it has written.  They take memory when they are first written, not when the pool is
    made.  Loans and returns may come from different threads.
    """

    def __init__(self, count: int, size: int) -> None:
        assert count > 0, count
        assert size > 0, size
        self.count = count
        self.size = size
        self._free = deque(memoryview(mmap.mmap(-1, size)) for _ in range(count))
        self._lent: set[int] = set()
        self._lock = threading.Lock()

    @property
    def free_count(self) -> int:
        """How many buffers can be borrowed."""
        return len(self._free)

    def borrow(self) -> memoryview | None:
        """Take a buffer, the one returned last; None when all are lent."""
        with self._lock:
            if not self._free:
                logger.warning("transient pool empty: buffers=%d", self.count)
                return None
            buffer = self._free.popleft()
            self._lent.add(id(buffer))
            free_count = len(self._free)
        if free_count < self.count * LOW_WATER_RATIO:
            logger.warning("transient pool low: free=%d buffers=%d", free_count, self.count)
        return buffer

    def give_back(self, buffer: memoryview) -> None:
        """Return a borrowed buffer: the very object, once."""
        with self._lock:
            if id(buffer) not in self._lent:
                raise StoreError("a buffer was returned that is not lent")
            self._lent.remove(id(buffer))
            self._free.appendleft(buffer)

    def close(self) -> None:
        """Release the memory of the free buffers; a lent one goes with its borrower."""
        with self._lock:
            while self._free:
                buffer = self._free.popleft()
                memory = buffer.obj
                assert isinstance(memory, mmap.mmap)
                # Whoever still looks at a slice of it keeps the memory until they are done.
                with contextlib.suppress(BufferError):
                    buffer.release()
                    memory.close()
