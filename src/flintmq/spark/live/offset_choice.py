"""Where reading begins and ends: what the options about offsets and times ask for.

The first of these that is given counts, as in Spark's source for Kafka:

    startingTimestamp            a store time for all queues
    startingOffsetsByTimestamp   a store time for each queue, as JSON
    startingOffsets              earliest, latest, or an offset for each queue, as JSON

and the same with ``ending``.  The JSON is {"topic": {"broker": {"queueId": value}}}, or without
the level of the brokers, as Kafka has it, for topics that are on one broker.  An offset may also be
a place as the progress of a stream shows it, which has a proof of the record before the offset.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from flintmq.model.message_queue import MessageQueue
from flintmq.spark.errors import OptionError
from flintmq.spark.live.places import SeenRecord, place_of
from flintmq.spark.options.offset_bounds import EARLIEST, EARLIEST_TEXT, FORM, LATEST, LATEST_TEXT
from flintmq.spark.options.option_values import Given, parse_choice, parse_time
from flintmq.spark.options.queue_json import Named, queue_items, queue_values

_WORDS: Final = {EARLIEST_TEXT: EARLIEST, LATEST_TEXT: LATEST}
_TIME_FORM: Final = 'JSON such as {"topic": {"broker": {"0": 1700000000000}}}, in milliseconds'


class TimeStrategy(Enum):
    """What a start is where no message is of the time asked for, or later."""

    ERROR = "error"
    LATEST = "latest"


class Wanted(NamedTuple):
    """What is asked for of one queue: an offset (or EARLIEST, LATEST), or a store time.

    ``last`` is what the record before the offset has to be.
    """

    offset: int = LATEST
    time_ms: int | None = None
    last: SeenRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChoice:
    """An end or a start for every queue; a queue that is not named gets the default."""

    option: str
    default: Wanted
    by_queue: Mapping[Named, Wanted] = field(default_factory=dict)
    strategy: TimeStrategy = TimeStrategy.ERROR

    def of(self, queue: MessageQueue) -> Wanted:
        """Return what is asked for of a queue."""
        for broker in (queue.broker_name, None):
            found = self.by_queue.get((broker, queue.topic, queue.queue_id))
            if found is not None:
                return found
        return self.default

    def check(self, queues: Collection[MessageQueue]) -> None:
        """Raise OptionError for a queue that does not exist, or that several brokers have."""
        for broker, topic, queue_id in self.by_queue:
            homes = [
                one.broker_name for one in queues if one.topic == topic and one.queue_id == queue_id
            ]
            if (broker is None and not homes) or (broker is not None and broker not in homes):
                where = "" if broker is None else f" of {broker}"
                raise OptionError(f"{self.option}: {topic} has no queue {queue_id}{where}")
            if broker is None and len(homes) > 1:
                raise OptionError(
                    f"{self.option}: queue {queue_id} of {topic} is on {', '.join(sorted(homes))}; "
                    "name the broker"
                )


def parse_start(given: Given, *, default: int) -> OffsetChoice:
    """Return where reading starts; ``default`` is EARLIEST for a batch, LATEST for a stream."""
    strategy = parse_choice("startingOffsetsByTimestampStrategy", given, TimeStrategy.ERROR)
    return _parse("starting", given, default, strategy)


def parse_end(given: Given) -> OffsetChoice:
    """Return where a batch ends; behind the last message of now unless it is told otherwise."""
    return _parse("ending", given, LATEST, TimeStrategy.LATEST)


def _parse(prefix: str, given: Given, default: int, strategy: TimeStrategy) -> OffsetChoice:
    by_time, by_offset = f"{prefix}OffsetsByTimestamp", f"{prefix}Offsets"
    time_ms = parse_time(f"{prefix}Timestamp", given)
    if time_ms is not None:
        name = f"{prefix}Timestamp"
        return OffsetChoice(option=name, default=Wanted(time_ms=time_ms), strategy=strategy)
    times = given.get(by_time.lower())
    if times is not None:
        return OffsetChoice(
            option=by_time,
            default=Wanted(default),
            by_queue={
                named: Wanted(time_ms=value)
                for named, value in queue_values(by_time, times, _TIME_FORM, "time")
            },
            strategy=strategy,
        )
    text = given.get(by_offset.lower(), "").strip()
    if not text or text.lower() in _WORDS:
        wanted = Wanted(_WORDS.get(text.lower(), default))
        return OffsetChoice(option=by_offset, default=wanted)
    by_queue = {}
    for named, value in queue_items(by_offset, text, FORM):
        try:
            place = place_of(value)
        except ValueError as error:
            raise OptionError(
                f"{by_offset} of {named[1]!r} {named[2]}: no offset: {value!r}"
            ) from error
        if place.offset < EARLIEST:
            raise OptionError(f"{by_offset} of {named[1]!r} {named[2]}: no offset: {value!r}")
        by_queue[named] = Wanted(place.offset, last=place.last)
    return OffsetChoice(option=by_offset, default=Wanted(default), by_queue=by_queue)
