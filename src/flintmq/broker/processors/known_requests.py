"""Requests of known kinds, handled straight from what sockets brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def take(self, reads: Sequence[tuple[RequestSource, bytes]]) -> Sequence[int]:
        """Handle requests at the beginnings of reads; return how many bytes of each those were."""
        if len(reads) == 1 and reads[0][0].pull_reads > 0:
            taken = self._pulls.take(reads)
            return taken if taken[0] or self._sends is None else self._sends.take(reads)
        offered = [number for number, read in enumerate(reads) if read[0].pull_reads > 0]
        if not offered:
            return () if self._sends is None else self._sends.take(reads)
        handled = [0] * len(reads)
        taken = self._pulls.take([reads[number] for number in offered])
        for number, size in zip(offered, taken, strict=True):
            handled[number] = size
        left = [number for number, size in enumerate(handled) if not size]
        if left and self._sends is not None:
            taken = self._sends.take([reads[number] for number in left])
            for number, size in zip(left, taken, strict=False):
                handled[number] = size
        return handled
