"""A kind of pull that was admitted, which others of its kind go by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from flintmq.broker.pulling.pull_admission import AdmittedPull
    from flintmq.broker.statistics.broker_statistics import GotQueue
    from flintmq.store.read_cursor import ReadCursor


class KnownPull(NamedTuple):
    """A kind of pull that was admitted."""

    kind: tuple[str | None, ...]
    based_on: tuple[object, ...]
    """What its admission depends on, as it was then."""
    group: str
    topic: str
    queue_id: int
    count_max: int
    admitted: AdmittedPull
    commits: bool
    hold_ms: int | None
    """How long it may be held if there is nothing; None: not at all."""
    held_size: int
    is_registered: bool
    """Whether the subscription is the one of the group's heartbeats, which may change it."""
    got_queue: GotQueue
    cursor: ReadCursor
    message_model: str | None
    """How the group consumed when the pull was admitted; groups can be refused one of the ways."""
