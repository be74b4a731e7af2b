"""The options of the data source: which there are, for which table, and what they say.

Names are compared without regard to case, as Spark does; docs/spark.md lists them.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from flintmq.spark.errors import OptionError
from flintmq.spark.options.offset_bounds import (
    EARLIEST_TEXT,
    ENDING,
    LATEST_TEXT,
    STARTING,
    OffsetBounds,
    parse_offset_bounds,
)
from flintmq.spark.options.option_values import (
    Given,
    parse_broker_names,
    parse_choice,
    parse_count,
    parse_names,
    parse_paths,
    parse_queue_ids,
    parse_size,
    parse_time,
    parse_truth,
)

SPLIT_SIZE: Final = 64 << 20


class Source(Enum):
    """Which table of a store directory is read."""

    COMMIT_LOG = "commitlog"
    QUEUES = "queues"
    INDEX = "index"
    OFFSETS = "offsets"
    TOPICS = "topics"
    GROUPS = "groups"


class OnCorrupt(Enum):
    """What becomes of a range of the log that holds no whole record."""

    FAIL = "fail"
    SKIP = "skip"
    ROW = "row"


class AccessPath(Enum):
    """By which files the wanted messages are found."""

    AUTO = "auto"
    LOG = "log"
    QUEUE = "queue"
    INDEX = "index"


_LOG: Final = frozenset({Source.COMMIT_LOG})
_UNITS: Final = frozenset({Source.COMMIT_LOG, Source.QUEUES})
_ALL: Final = frozenset(Source)
_HOLDS_FOR: Final[dict[str, frozenset[Source]]] = {
    "path": _ALL,
    "paths": _ALL,
    "source": _ALL,
    "brokerName": _ALL,
    "topic": frozenset({Source.COMMIT_LOG, Source.QUEUES, Source.OFFSETS, Source.TOPICS}),
    "queueId": _UNITS,
    "tags": _LOG,
    "keys": _LOG,
    "startingTimestamp": _LOG,
    "endingTimestamp": _LOG,
    STARTING: _UNITS,
    ENDING: _UNITS,
    "onCorruptRecord": _LOG,
    "setAside": _LOG,
    "accessPath": _LOG,
    "splitSize": _UNITS,
    "filterPushdown": _LOG,
    "maxBytesPerTrigger": _LOG,
    "maxOffsetsPerTrigger": _LOG,
    "failOnDataLoss": _LOG,
}
NAMES: Final = tuple(_HOLDS_FOR)
_KNOWN: Final = {name.lower(): name for name in NAMES}
_NO_OFFSETS: Final = OffsetBounds({}, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What to read.  Times are milliseconds, the end is exclusive; what is None does not restrict.

    ``broker_names`` gives the name by directory, by its last component, or for all under "".
    ``set_aside`` reads what recovery has cut off the log and set aside, instead of the log.
    """

    paths: tuple[str, ...]
    source: Source = Source.COMMIT_LOG
    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    offsets: OffsetBounds = field(default_factory=lambda: _NO_OFFSETS)
    on_corrupt: OnCorrupt = OnCorrupt.FAIL
    set_aside: bool = False
    access_path: AccessPath = AccessPath.AUTO
    split_size: int = SPLIT_SIZE
    broker_names: Mapping[str, str]
    filter_pushdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """How a stream goes on.  A limit that is None is none."""

    read: ReadOptions
    from_latest: bool = False
    bytes_max: int | None = None
    rows_max: int | None = None
    fail_on_data_loss: bool = True


def parse_source(options: Mapping[str, str]) -> Source:
    """Return which table is read; the schema depends on it."""
    return parse_choice("source", _lowered(options), Source.COMMIT_LOG)


def parse_on_corrupt(options: Mapping[str, str]) -> OnCorrupt:
    """Return what to do with damage; the schema depends on it."""
    return parse_choice("onCorruptRecord", _lowered(options), OnCorrupt.FAIL)


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the values of ``options``; OptionError for one that is unknown or means nothing."""
    given = _lowered(options)
    return _parse(given, parse_offset_bounds(given))


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Return the options of a stream, whose offsets are positions in the log."""
    given = _lowered(options)
    start = given.get(STARTING.lower(), EARLIEST_TEXT).strip().lower()
    if start not in (EARLIEST_TEXT, LATEST_TEXT):
        raise OptionError(f"{STARTING} of a stream over directories is earliest or latest")
    if ENDING.lower() in given:
        raise OptionError(f"{ENDING} has no place in a stream: it follows the log as it grows")
    if "accesspath" in given:
        raise OptionError(
            "accessPath has no place in a stream: queues and index come after the log"
        )
    if "setaside" in given:
        raise OptionError("setAside has no place in a stream: what was set aside does not grow")
    read = replace(_parse(given, _NO_OFFSETS), access_path=AccessPath.LOG)
    if read.source is not Source.COMMIT_LOG:
        raise OptionError(f"source={read.source.value} is no stream; only commitlog is")
    return StreamOptions(
        read=read,
        from_latest=start == LATEST_TEXT,
        bytes_max=parse_size("maxBytesPerTrigger", given),
        rows_max=parse_count("maxOffsetsPerTrigger", given),
        fail_on_data_loss=parse_truth("failOnDataLoss", given, default=True),
    )


def _parse(given: Given, offsets: OffsetBounds) -> ReadOptions:
    source = parse_choice("source", given, Source.COMMIT_LOG)
    refuse_unknown(given, source)
    read = ReadOptions(
        paths=parse_paths(given),
        source=source,
        topics=parse_names("topic", given, ","),
        queue_ids=parse_queue_ids(given),
        tags=parse_names("tags", given, "||"),
        keys=parse_names("keys", given, " "),
        starting_timestamp=parse_time("startingTimestamp", given),
        ending_timestamp=parse_time("endingTimestamp", given),
        offsets=offsets,
        on_corrupt=parse_choice("onCorruptRecord", given, OnCorrupt.FAIL),
        set_aside=parse_truth("setAside", given, default=False),
        access_path=parse_choice("accessPath", given, AccessPath.AUTO),
        split_size=parse_size("splitSize", given) or SPLIT_SIZE,
        broker_names=parse_broker_names(given),
        filter_pushdown=parse_truth("filterPushdown", given, default=False),
    )
    _check_access_path(read)
    return read


def _check_access_path(read: ReadOptions) -> None:
    path = read.access_path
    if path is AccessPath.QUEUE and read.topics is None:
        raise OptionError("accessPath=queue needs the option topic")
    if path is AccessPath.INDEX and (read.topics is None or read.keys is None):
        raise OptionError("accessPath=index needs the options topic and keys")


def refuse_unknown(names: Iterable[str], source: Source = Source.COMMIT_LOG) -> None:
    """Raise OptionError for a name that no option has, or that says nothing about a table."""
    for name in names:
        known = _KNOWN.get(name.lower())
        if known is None:
            near = difflib.get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0.5)
            hint = f"did you mean {_KNOWN[near[0]]}?" if near else f"known are {', '.join(NAMES)}"
            raise OptionError(f"unknown option {name!r}; {hint}")
        if source not in _HOLDS_FOR[known]:
            raise OptionError(f"the option {known} says nothing about source={source.value}")


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}
