"""Ranges of queue offsets: how much a micro-batch takes, and into which pieces it is cut.

Everything here is pure.  A range ends before its end; the offsets of a queue are dense.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from flintmq.model.message_queue import MessageQueue

Offsets: TypeAlias = dict[MessageQueue, int]
"""The offset to be read next, by queue."""

OffsetJson: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""Offsets as Spark keeps them: by topic, broker and queue id."""


class QueueRange(NamedTuple):
    """The messages of one queue from ``start`` to before ``end``."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def length(self) -> int:
        """How many offsets there are."""
        return max(0, self.end - self.start)


def to_json(offsets: Mapping[MessageQueue, int]) -> OffsetJson:
    """Return offsets as Spark keeps them."""
    found: OffsetJson = {}
    for (topic, broker, queue_id), offset in sorted(offsets.items()):
        found.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = offset
    return found


def share_out(
    ranges: Iterable[QueueRange], limit: int, sizes: Mapping[MessageQueue, int] | None = None
) -> list[QueueRange]:
    """Return ranges shortened so that they weigh ``limit`` together at most.

    A message weighs what ``sizes`` says of its queue, else 1.  Every queue gets an equal share;
    what one has no use for goes to the others.  Single messages that remain go around: the
    queue that comes first moves on with the offsets, so none is left behind for ever.  At least
    one message is taken if there is any.
    """
    all_ranges = sorted(ranges)
    waiting = [one for one in all_ranges if one.length]
    weights = {one.queue: max(1, (sizes or {}).get(one.queue, 1)) for one in waiting}
    taken = dict.fromkeys((one.queue for one in all_ranges), 0)
    left = limit
    level: int | None = None
    by_weight = sorted(waiting, key=lambda one: one.length * weights[one.queue])
    for number, one in enumerate(by_weight):
        share = left // (len(by_weight) - number) if level is None else level
        weight = weights[one.queue]
        if one.length * weight > share:
            level = share  # The queues that follow are longer: all of them get as much.
        taken[one.queue] = min(one.length, share // weight)
        left -= taken[one.queue] * weight
    for one in _in_turn(waiting):
        if taken[one.queue] < one.length and weights[one.queue] <= left:
            taken[one.queue] += 1
            left -= weights[one.queue]
    if waiting and not any(taken.values()):
        taken[_in_turn(waiting)[0].queue] = 1
    return [QueueRange(one.queue, one.start, one.start + taken[one.queue]) for one in all_ranges]


def _in_turn(ranges: Sequence[QueueRange]) -> list[QueueRange]:
    """Return the ranges rotated: each message that was read moves the start on by one."""
    turn = sum(one.start for one in ranges) % len(ranges) if ranges else 0
    return [*ranges[turn:], *ranges[:turn]]


def split(
    ranges: Iterable[QueueRange], *, partitions_min: int | None, rows_max: int
) -> list[QueueRange]:
    """Return ranges cut into pieces of ``rows_max`` offsets at most.

    There are fewer than ``partitions_min`` pieces only if there are fewer offsets.  The pieces of a
    range are alike in length and come in the order of their offsets; an empty range gives none.
    """
    some = [one for one in ranges if one.length]
    total = sum(one.length for one in some)
    if partitions_min is not None and total:
        rows_max = min(rows_max, max(1, total // partitions_min))
    return [piece for one in some for piece in _pieces(one, -(-one.length // rows_max))]


def _pieces(one: QueueRange, count: int) -> Iterable[QueueRange]:
    bounds = [one.start + one.length * number // count for number in range(count + 1)]
    for start, end in itertools.pairwise(bounds):
        yield QueueRange(one.queue, start, end)


class Loss(NamedTuple):
    """Messages that should be there and are not: where to go on, and what happened.

    ``is_damage`` says that a message is there, and is not what its producer sent.
    """

    resume: int
    reason: str
    is_damage: bool = False


def judge(wanted: int, least: int, end: int) -> Loss | None:
    """Return what is lost where a reader wants to go on at ``wanted``; None if nothing is.

    ``least`` and ``end`` are the bounds of the queue now.
    """
    if wanted < least:
        return Loss(
            least,
            f"the queue starts at {least} now; {least - wanted} messages from {wanted} on were "
            "deleted before they were read",
        )
    if wanted > end:
        return Loss(
            end,
            f"the queue ends at {end} while {wanted} was read already: it went backwards, as a "
            "topic does that is deleted and made anew",
        )
    return None
