"""One pull that waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from flintmq.broker.filtering.pull_filter import PullFilter
    from flintmq.remoting.peer import Peer

PULL_SIZE: Final = 1024
"""Bytes that are charged for a pull besides its subscription."""

Queue: TypeAlias = tuple[str, int]


@dataclass(slots=True, eq=False, repr=False)
class HeldPull:
    """One pull that waits.  ``answer`` reads again and answers, whatever is found."""

    queue: Queue
    offset: int
    message_filter: PullFilter | None
    connection: Peer
    answer: Callable[[], None]
    size: int = PULL_SIZE
    """Bytes that are charged for it."""
    is_answered: bool = False
    is_woken: bool = False
    """Whether something has come for it."""
    waits_for_room: bool = False
    """Whether it would have been answered if its peer had read more."""
