"""Answers of all connections together that their peers have not read yet, which are bounded too.

One connection is paused when it has much unread, and dropped when it has too much.  Hundreds of
them, each just below its own limit, would hold more than the machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Protocol

GROWTH_SHARE: Final = 16
"""Sizes are looked at anew each time that the total grew by this fraction of the pause size."""

SHARE_MIN: Final = 64 << 10
"""Bytes that a connection may leave unread in any case before it is paused."""


class AnswerWriter(Hashable, Protocol):
    """A connection as the account sees it."""

    @property
    def unread_size(self) -> int:
        """Bytes that were written and that the peer has not read yet."""
        ...

    def pause_above(self, size: int) -> None:
        """Read no more from the peer, and answer no held pulls, while more is unread."""
        ...

    def drop(self, reason: str) -> None:
        """Close now and log why."""
        ...


class UnreadAnswers:
    """How many bytes of answers the connections of a server keep for their peers.

    Above ``pause_size`` each connection may have its share of that size only, so those with the
    most are paused first; ``own_pause_size`` is what it may have otherwise.  The total is never
    above ``size_max``: before more is written, the connections with the most are dropped.
    """

    def __init__(
        self,
        *,
        own_pause_size: int,
        pause_size: int,
        size_max: int,
        on_drop: Callable[[], object] | None = None,
    ) -> None:
        self._own_pause_size = own_pause_size
        self._pause_size = pause_size
        self._size_max = size_max
        self._on_drop = on_drop
        self._sizes: dict[AnswerWriter, int] = {}
        self._restrained: set[AnswerWriter] = set()
        """Connections that may have less than usual."""
        self._looked_at_size = 0
        """The total when sizes were last looked at anew."""
        self.total_size = 0
        """Bytes that are unread; some may have been read since the connection last wrote."""
        self.peak_size = 0
        """The largest total so far."""
        self.dropped_count = 0

    @property
    def free_size(self) -> int:
        """Bytes that can be added before connections have to be dropped."""
        return self._size_max - self.total_size

    def note(self, writer: AnswerWriter, size: int) -> None:
        """Note how many bytes a connection keeps now."""
        self.total_size += size - self._sizes.get(writer, 0)
        if size:
            self._sizes[writer] = size
        else:
            self._sizes.pop(writer, None)
        if self.total_size > self._pause_size:
            self._restrain(writer, size)
        elif self._restrained and self.total_size <= self._pause_size // 2:
            self._release()
        if self.total_size > self.peak_size:
            self.peak_size = self.total_size

    def forget(self, writer: AnswerWriter) -> None:
        """Forget a connection that has ended."""
        self._restrained.discard(writer)
        self.note(writer, 0)

    def make_room(self, size: int) -> None:
        """Drop connections, those with the most first, until ``size`` bytes can be added."""
        if self.total_size + size <= self._size_max:
            return
        self._look_again()
        while self._sizes and self.total_size + size > self._size_max:
            writer = max(self._sizes, key=self._sizes.__getitem__)
            unread = self._sizes[writer]
            self.forget(writer)
            self.dropped_count += 1
            if self._on_drop is not None:
                self._on_drop()
            writer.drop(
                f"all unread answers have more than {self._size_max} bytes, "
                f"and its own, of {unread} bytes, are the most"
            )

    def _restrain(self, writer: AnswerWriter, size: int) -> None:
        """Give connections their share only."""
        if self.total_size > self._looked_at_size + self._pause_size // GROWTH_SHARE:
            self._look_again()
            if self.total_size <= self._pause_size:
                return
        share = self._share
        if size > share and writer not in self._restrained:
            self._restrained.add(writer)
            writer.pause_above(share)

    @property
    def _share(self) -> int:
        fair = self._pause_size // max(len(self._sizes), 1)
        return min(max(fair, SHARE_MIN), self._own_pause_size)

    def _look_again(self) -> None:
        """Bring all sizes up to date: nobody tells when a peer has read something."""
        for writer in list(self._sizes):
            size = min(writer.unread_size, self._sizes[writer])
            self.total_size += size - self._sizes[writer]
            if size:
                self._sizes[writer] = size
            else:
                del self._sizes[writer]
        self._looked_at_size = self.total_size
        if self.total_size > self._pause_size:
            share = self._share
            for writer, size in list(self._sizes.items()):
                if size > share and writer not in self._restrained:
                    self._restrained.add(writer)
                    writer.pause_above(share)
        elif self.total_size <= self._pause_size // 2:
            self._release()

    def _release(self) -> None:
        """Let everyone have as much as usual again."""
        restrained, self._restrained = self._restrained, set()
        self._looked_at_size = 0
        for writer in restrained:
            writer.pause_above(self._own_pause_size)
