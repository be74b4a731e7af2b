"""A master's view of one slave: where its stream goes on, and how far it has come.

It does no I/O: bytes, times and the ends of the log are handed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.replication.errors import AheadOfMasterError
from flintmq.format.wire.ha_stream import ReportDecoder

if TYPE_CHECKING:
    from collections.abc import Callable


class SlaveLink:
    """One stream to a slave, from its first report on.

    The first report asks where to begin, and promises nothing: the slave has yet to compare what
    it has with what it gets.  Every later one says that the slave has the log up to there.
    """

    def __init__(
        self,
        peer: str,
        *,
        now_ms: Callable[[], int],
        heartbeat_ms: int,
        silence_ms: int,
    ) -> None:
        self.peer = peer
        self._now_ms = now_ms
        self._heartbeat_ms = heartbeat_ms
        self._silence_ms = silence_ms
        self._reports = ReportDecoder()
        self.requested: int | None = None
        """Where the slave wanted its stream to begin; None before it has said so."""
        self.next_offset = 0
        """Where the next transfer begins."""
        self.acknowledged = -1
        """Up to where the slave has the log; -1 before it has promised anything."""
        self._heard_ms = self._sent_ms = self._current_ms = now_ms()

    def received(self, chunk: bytes | memoryview, *, log_start: int, log_end: int) -> bool:
        """Take in reports; return whether the slave is further now.

        Raises:
            AheadOfMasterError: the slave has more than there is.
            RemoteProtocolError: it is no slave.
        """
        offsets = self._reports.feed(chunk)
        if not offsets:
            return False
        self._heard_ms = self._now_ms()
        if self.requested is None:
            # An empty slave asks for the offset 1 or 0, whatever there is.
            if offsets[0] > max(log_end, 1):
                raise AheadOfMasterError(offsets[0], log_end)
            self.requested = offsets[0]
            self.next_offset = max(offsets[0], log_start)
            # So that the slave learns at once where its master begins.
            self._sent_ms = self._heard_ms - self._heartbeat_ms
            offsets = offsets[1:]
            if not offsets:
                return False
        reported = offsets[-1]
        if reported > log_end:
            raise AheadOfMasterError(reported, log_end)
        if reported >= log_end:
            self._current_ms = self._heard_ms
        is_further = reported > self.acknowledged
        self.acknowledged = max(self.acknowledged, reported)
        return is_further

    def transferred(self, size: int) -> None:
        """Note that the next ``size`` bytes of the log, or a heartbeat, are on their way."""
        self.next_offset += size
        self._sent_ms = self._now_ms()

    def is_overtaken(self, log_start: int) -> bool:
        """Whether the retention of the master has deleted what the slave needs next."""
        return self.is_streaming and self.next_offset < log_start

    @property
    def is_streaming(self) -> bool:
        """Whether the slave has said where to begin."""
        return self.requested is not None

    @property
    def is_heartbeat_due(self) -> bool:
        """Whether nothing was sent for so long that the slave needs a sign of life."""
        return self.is_streaming and self._now_ms() - self._sent_ms >= self._heartbeat_ms

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for so long that the slave is taken for gone."""
        return self._now_ms() - self._heard_ms >= self._silence_ms

    def lag_ms(self, log_end: int) -> int:
        """Return since when the slave has not had all there is; 0 if it has."""
        if self.acknowledged >= log_end:
            return 0
        return self._now_ms() - self._current_ms
