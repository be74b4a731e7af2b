"""What a synchronous master can promise of its slaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flintmq.broker.waiting.positions import GrowingPosition


class SlavePromise(Protocol):
    """The slaves of a master, as those see them who wait for one."""

    @property
    def acknowledged(self) -> GrowingPosition:
        """Up to where some slave has the log."""
        ...

    def can_promise(self, position: int) -> bool:
        """Whether it is worth waiting for a slave to have the log up to ``position``."""
        ...
