"""Requests of known kinds, handled straight from what sockets brought."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
        self.take_at_once: Final = pulls.take
        """Handles pulls at the beginning of a read; returns how many bytes those were."""

    @property
    def is_ready(self) -> bool:
        """Whether there is machine code by now, by which even a single request costs less."""
        return self._pulls.is_ready or (self._sends is not None and self._sends.is_ready)

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        """Handle requests at the beginnings of reads; return how many bytes of each those were."""
        handled = [
            self._pulls.take(connection, data) if connection.pull_reads > 0 else 0
            for connection, data in reads
        ]
        if self._sends is None:
            return handled
        left = [number for number, size in enumerate(handled) if not size]
        if len(left) == len(reads):
            return self._sends.take(reads)
        taken = self._sends.take([reads[number] for number in left]) if left else ()
        for number, size in zip(left, taken, strict=False):
            handled[number] = size
        return handled
