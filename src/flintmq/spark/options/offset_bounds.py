"""The options ``startingOffsets`` and ``endingOffsets``: an offset for each queue they name.

They are JSON, as the Spark connector of RocketMQ has it, or the same without the level of the
brokers, which then holds for all of them:

    {"orders": {"broker-a": {"0": 17, "1": -2}}}
    {"orders": {"0": 17, "1": -2}}

A start is inclusive, an end exclusive.  -2 is the earliest offset, -1 the latest; either says
nothing here, since a batch reads from the first message to the last unless it is told otherwise.
A queue that is not named is not restricted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintmq.spark.errors import OptionError
from flintmq.spark.options.queue_json import queue_values

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flintmq.offline.layout import QueueKey
    from flintmq.spark.options.option_values import Given
    from flintmq.spark.options.queue_json import Named

EARLIEST: Final = -2
LATEST: Final = -1
EARLIEST_TEXT: Final = "earliest"
LATEST_TEXT: Final = "latest"
STARTING: Final = "startingOffsets"
ENDING: Final = "endingOffsets"

FORM: Final = (
    'earliest, latest or JSON such as {"topic": {"broker": {"0": 17}}}, -2 for earliest and -1 '
    "for latest"
)
_OPEN: Final = {STARTING: (EARLIEST, EARLIEST_TEXT), ENDING: (LATEST, LATEST_TEXT)}
_ANY_BROKER: Final = None


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """Bounds by broker name (None for all), topic and queue id."""

    starts: dict[Named, int]
    ends: dict[Named, int]

    @property
    def is_open(self) -> bool:
        """Whether no queue is restricted."""
        return not self.starts and not self.ends

    def bounds(self, broker: str | None, key: QueueKey) -> tuple[int | None, int | None]:
        """Return start and exclusive end of a queue, None where there is none."""
        return _find(self.starts, broker, key), _find(self.ends, broker, key)

    def check_brokers(self, known: Iterable[str | None]) -> None:
        """Raise OptionError for a broker that no directory is named after."""
        names = set(known)
        for broker, topic, _ in (*self.starts, *self.ends):
            if broker is not _ANY_BROKER and broker not in names:
                have = ", ".join(sorted(name or "none" for name in names))
                raise OptionError(
                    f"the offsets of {topic!r} name the broker {broker!r}, while the option "
                    f"brokerName gives the directories: {have}"
                )


def parse_offset_bounds(given: Given) -> OffsetBounds:
    """Return what both options say; a text is earliest for the start, latest for the end."""
    return OffsetBounds(_parse(STARTING, given), _parse(ENDING, given))


def _find(table: dict[Named, int], broker: str | None, key: QueueKey) -> int | None:
    exact = table.get((broker, *key))
    return table.get((_ANY_BROKER, *key)) if exact is None else exact


def _parse(name: str, given: Given) -> dict[Named, int]:
    text = given.get(name.lower(), "").strip()
    open_value, open_text = _OPEN[name]
    if not text or text.lower() == open_text:
        return {}
    if text.lower() in (EARLIEST_TEXT, LATEST_TEXT):
        raise OptionError(f"{name} {text.lower()} leaves nothing to read in a batch")
    found: dict[Named, int] = {}
    for named, offset in queue_values(name, text, FORM):
        _, topic, queue_id = named
        if offset < EARLIEST:
            raise OptionError(f"{name} of {topic!r} {queue_id}: no offset: {offset!r}")
        if offset < 0 and offset != open_value:
            word = LATEST_TEXT if offset == LATEST else EARLIEST_TEXT
            raise OptionError(
                f"{name} of {topic!r} {queue_id} is {word}, which leaves nothing to read in a batch"
            )
        if offset != open_value:
            found[named] = offset
    return found
