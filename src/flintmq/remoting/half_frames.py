"""Unfinished frames of all connections together, which are bounded too.

One connection holds less than a frame.  Thousands of them, each with the start of a large frame,
would hold more than the machine has.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

OwnerT = TypeVar("OwnerT", bound=Hashable)

RELEASED_COUNT: Final = 4
"""Pieces of frames that are given back in one turn of the loop: 20 µs for each are usual."""


class HalfFrames(Generic[OwnerT]):
    """How many bytes of unfinished frames the connections of a server hold.

    Above the limit the connection whose frame began first is dropped: an honest peer would have
    finished its frame long before.  ``drop`` ends the connection.
    """

    def __init__(self, size_max: int, *, drop: Callable[[OwnerT, int], None]) -> None:
        self._size_max = size_max
        self._drop = drop
        self._sizes: dict[OwnerT, int] = {}
        """Bytes by connection, in the order in which the frames began."""
        self.total_size = 0
        self._released: deque[bytes] = deque()

    def release(self, pieces: Iterable[bytes]) -> None:
        """Give back what a lost connection held, a little in each turn of the loop.

        To give back 16 MiB takes the kernel one or two milliseconds, and others wait meanwhile.
        """
        is_idle = not self._released
        self._released.extend(pieces)
        if self._released and is_idle:
            asyncio.get_running_loop().call_soon(self._release_some)

    def _release_some(self) -> None:
        for _ in range(min(RELEASED_COUNT, len(self._released))):
            self._released.popleft()
        if self._released:
            asyncio.get_running_loop().call_soon(self._release_some)

    def note(self, owner: OwnerT, size: int, *, is_new: bool) -> None:
        """Note how many bytes a connection holds now; ``is_new`` if they are of another frame."""
        if is_new or not size:
            self.total_size -= self._sizes.pop(owner, 0)
        if size:
            self.total_size += size - self._sizes.get(owner, 0)
            self._sizes[owner] = size
        while self.total_size > self._size_max:
            oldest = next(iter(self._sizes))
            dropped_size = self._sizes.pop(oldest)
            self.total_size -= dropped_size
            self._drop(oldest, dropped_size)


class HalfFrame(Generic[OwnerT]):
    """What one connection holds of a frame that it has not got whole."""

    def __init__(self, all_half_frames: HalfFrames[OwnerT] | None, owner: OwnerT) -> None:
        self._all = all_half_frames
        self._owner = owner
        self._size = 0
        """Bytes that all were last told of."""
        self.fed_size = 0
        """Bytes that were read since then."""

    def release(self, pieces: Iterable[bytes]) -> None:
        """Give back what is held; the connection is lost."""
        if self._all is not None:
            self._all.release(pieces)
        self.note(0)

    def note(self, size: int) -> None:
        """Tell how many bytes are held now.

        If that has not grown by all that was read, some frame was finished and this is another one.
        """
        unfinished_size, self.fed_size = self._size + self.fed_size, 0
        if self._all is not None and (size or self._size):
            self._size = size
            self._all.note(self._owner, size, is_new=size != unfinished_size)
