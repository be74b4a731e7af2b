"""The slaves of a master: who they are, how far they have come, and who waits for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flintmq.broker.waiting.positions import GrowingPosition

if TYPE_CHECKING:
    from flintmq.broker.replication.slave_link import SlaveLink


class SlaveStatus(NamedTuple):
    """What a master knows of one slave."""

    peer: str
    acknowledged: int
    lag_size: int
    lag_ms: int


class SlaveTable:
    """All slaves of this broker.

    `acknowledged` is the promise to senders: some slave has the log up to there.  As in RocketMQ
    one slave is enough, and a promise is not taken back when that slave goes.
    """

    def __init__(self, *, lag_size_max: int) -> None:
        self._lag_size_max = lag_size_max
        self.links: dict[SlaveLink, None] = {}
        self._acknowledged = GrowingPosition()

    @property
    def acknowledged(self) -> GrowingPosition:
        """Up to where some slave has the log."""
        return self._acknowledged

    def add(self, link: SlaveLink) -> None:
        """Take in a slave that has connected."""
        self.links[link] = None

    def remove(self, link: SlaveLink) -> None:
        """Forget a slave whose connection is gone."""
        self.links.pop(link, None)

    def advanced(self, link: SlaveLink) -> None:
        """Note that a slave has come further."""
        self.acknowledged.advance(link.acknowledged)

    def can_promise(self, position: int) -> bool:
        """Whether it is worth waiting for a slave to have the log up to ``position``.

        There has to be a slave that is not too far behind.  Who has connected and said nothing is
        none.
        """
        return position - self.acknowledged.value < self._lag_size_max and any(
            link.is_streaming for link in self.links
        )

    def statuses(self, log_end: int) -> list[SlaveStatus]:
        """Return how far each slave is."""
        return [
            SlaveStatus(
                link.peer,
                max(link.acknowledged, 0),
                log_end - max(link.acknowledged, 0),
                link.lag_ms(log_end),
            )
            for link in self.links
        ]
