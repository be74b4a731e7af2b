"""Requests of known kinds, handled straight from what sockets brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.pulling.pull_fast_path import ANSWERED_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.broker.pulling.pull_fast_path import PullFastPath
    from flintmq.broker.sending.send_fast_path import SendFastPath
    from flintmq.remoting.request_table import RequestSource


class KnownRequests:
    """Offers each read to the machine code of pulls or of sends, by what its connection does.

    A broker that is a slave takes no sends.
    """

    def __init__(self, pulls: PullFastPath, sends: SendFastPath | None) -> None:
        self._pulls = pulls
        self._sends = sends

    @property
    def is_ready(self) -> bool:
        """Whether there is machine code by now, by which even a single request costs less."""
        return self._pulls.is_ready or (self._sends is not None and self._sends.is_ready)

    def take_at_once(self, connection: RequestSource, data: bytes) -> int:
        """Handle pulls at the beginning of a read; return how many bytes those were."""
        return self._pulls.take(connection, data)[0]

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        """Handle requests at the beginnings of reads; return how many bytes of each those were."""
        handled = self._take_pulls(reads)
        if self._sends is None:
            return handled
        left = [number for number, size in enumerate(handled) if not size]
        if len(left) == len(reads):
            return self._sends.take(reads)
        taken = self._sends.take([reads[number] for number in left]) if left else ()
        for number, size in zip(left, taken, strict=False):
            handled[number] = size
        return handled

    def _take_pulls(self, reads: Sequence[tuple[RequestSource, bytes]]) -> list[int]:
        """Handle pulls at the beginnings of reads, until they have led to so many bytes."""
        handled, size_left = [0] * len(reads), ANSWERED_SIZE_MAX
        for number, (connection, data) in enumerate(reads):
            if connection.pull_reads > 0 and size_left > 0:
                handled[number], answered_size = self._pulls.take(connection, data, size_left)
                size_left -= answered_size
        return handled
