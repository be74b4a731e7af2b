"""Places in queues: the offset to be read next, and what proves that the queue is still the same.

An offset is not an identity: a topic that was deleted and made anew, or a broker whose store was
emptied, has other messages at the same offsets.  So a place keeps a digest of the record before
it.  A place where a micro-batch has ended also keeps where that batch began, so that the batch
covers the same messages when it is repeated.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self, TypeAlias

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.live.ranges import Offsets, QueueRange

OFFSET: Final = "offset"
START: Final = "start"
LAST: Final = "last"
FIRST: Final = "first"
_PROOF: Final = re.compile(r"([0-9]{1,19})/(-?[0-9]{1,19})/([0-9a-f]{32})")


class SeenRecord(NamedTuple):
    """What one record is known by: where and when it was stored, and a digest of its bytes."""

    physical_offset: int
    store_time_ms: int
    digest: str

    @property
    def text(self) -> str:
        """The proof as JSON has it."""
        return f"{self.physical_offset}/{self.store_time_ms}/{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what ``text`` has made a text of; ValueError if it is none."""
        match = _PROOF.fullmatch(text)
        if match is None:
            raise ValueError(f"no proof of a record: {text[:80]!r}")
        return cls(int(match[1]), int(match[2]), match[3])


class QueuePlace(NamedTuple):
    """Where reading goes on in a queue.

    ``start`` is where the micro-batch began that ended here, None if this is where a query began.
    ``last`` is the record before ``offset``, None if the broker did not have it; ``is_first`` says
    that it had expired, so that no message before ``offset`` can be there but in another queue.
    """

    offset: int
    start: int | None = None
    last: SeenRecord | None = None
    is_first: bool = False


Places: TypeAlias = dict[MessageQueue, QueuePlace]
"""The place of a stream, by queue."""

PlaceValue: TypeAlias = int | dict[str, int | str]
PlaceJson: TypeAlias = dict[str, dict[str, dict[str, PlaceValue]]]
"""Places as Spark keeps them: by topic, broker and queue id."""


def place_value(place: QueuePlace) -> PlaceValue:
    """Return a place as JSON has it: a number where there is nothing but the offset."""
    value: dict[str, int | str] = {OFFSET: place.offset}
    if place.start is not None:
        value[START] = place.start
    if place.last is not None:
        value[LAST] = place.last.text
    if place.is_first:
        value[FIRST] = True
    return place.offset if len(value) == 1 else value


def place_of(value: object) -> QueuePlace:
    """Return what `place_value` has made JSON of; ValueError if it is something else."""
    if not isinstance(value, dict):
        return QueuePlace(_number(value))
    if not value.keys() <= {OFFSET, START, LAST, FIRST}:
        raise ValueError(f"no place: {value!r}")
    start, last = value.get(START), value.get(LAST)
    return QueuePlace(
        _number(value.get(OFFSET)),
        None if start is None else _number(start),
        None if last is None else SeenRecord.parse(str(last)),
        bool(value.get(FIRST)),
    )


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"no offset: {value!r}")  # noqa: TRY004 - as for any other wrong JSON
    return value


def places_to_json(places: Mapping[MessageQueue, QueuePlace]) -> PlaceJson:
    """Return places as Spark keeps them."""
    found: PlaceJson = {}
    for (topic, broker, queue_id), place in sorted(places.items()):
        found.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = place_value(place)
    return found


def places_from_json(value: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Places:
    """Return what `places_to_json` has made JSON of; numbers alone are offsets."""
    return {
        MessageQueue(topic, broker, int(queue_id)): place_of(place)
        for topic, brokers in value.items()
        for broker, queues in brokers.items()
        for queue_id, place in queues.items()
    }


def offsets_of(places: Mapping[MessageQueue, QueuePlace]) -> Offsets:
    """Return the offsets to be read next."""
    return {queue: place.offset for queue, place in places.items()}


class ProvenRange(NamedTuple):
    """A range of a queue, and records at its bounds that show whether the queue is the same.

    A proof is an offset and the record before it.
    """

    wanted: QueueRange
    proofs: tuple[tuple[int, SeenRecord], ...] = ()

    @property
    def end(self) -> QueuePlace:
        """The place at the end of the range."""
        return QueuePlace(self.wanted.end, last=dict(self.proofs).get(self.wanted.end))


def proven_range(queue: MessageQueue, start: QueuePlace | None, end: QueuePlace) -> ProvenRange:
    """Return what a micro-batch covers of a queue between two places.

    It depends on the end alone wherever the end knows; ``start`` is None for a queue that is new.
    """
    if start == end:
        return ProvenRange(QueueRange(queue, end.offset, end.offset))
    begin = end.start
    if begin is None:
        begin = end.offset if start is None else start.offset
    proofs = [(end.offset, end.last)] if end.last is not None else []
    if start is not None and start.last is not None and start.offset == begin:
        proofs.append((begin, start.last))
    return ProvenRange(QueueRange(queue, begin, max(begin, end.offset)), tuple(proofs))


def counted_between(start: Places, end: Places) -> tuple[int, int]:
    """Return how many messages a micro-batch has to give, and how many were passed over.

    A queue that was replaced, or is not there any more, counts as one that was passed over: how
    many messages it had nobody knows.
    """
    planned = 0
    passed = len(start.keys() - end.keys())
    for queue, place in end.items():
        before = start.get(queue)
        wanted = proven_range(queue, before, place).wanted
        planned += wanted.length
        if before is not None and before != place:
            skipped = wanted.start - before.offset
            passed += skipped if skipped >= 0 else 1
    return planned, passed
