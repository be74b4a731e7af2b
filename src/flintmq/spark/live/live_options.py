"""The options of live topics.  docs/spark.md lists them with their meaning."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flintmq.client.errors import UsageError
from flintmq.client.options import checked_group
from flintmq.format.subscription import ExpressionError, build_subscription
from flintmq.model.subscription import EVERYTHING, SQL92, TAG, Subscription
from flintmq.spark.errors import OptionError
from flintmq.spark.live.cluster_options import (
    CONNECTION_OPTIONS,
    ClusterConnection,
    lowered,
    parse_connection,
)
from flintmq.spark.live.kafka_names import refuse_kafka_name
from flintmq.spark.live.live_choice import ALIASES
from flintmq.spark.live.offset_choice import OffsetChoice, parse_end, parse_start
from flintmq.spark.live.repeats import LOOKBACK_MAX
from flintmq.spark.live.selection import SELECTIONS, QueueSelection, parse_selection
from flintmq.spark.options.offset_bounds import EARLIEST, ENDING, LATEST, STARTING
from flintmq.spark.options.option_values import Given, parse_count, parse_size, parse_truth

DEFAULT_GROUP: Final = "FLINTMQ_SPARK"
"""The group of all readers that name none: brokers remember every group that they have met."""

PULL_COUNT: Final = 1024
PULL_TIMEOUT_MS: Final = 10_000
RETRIES: Final = 8
RETRIES_MAX: Final = 100
PARTITION_ROWS_MAX: Final = 250_000
"""A longer range of a queue becomes several partitions."""

_ALIASES: Final = ALIASES | {"topic": "subscribe"}
_READ_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    *SELECTIONS,
    STARTING,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "subExpression",
    "sqlFilter",
    "group",
    "pullBatchSize",
    "pullTimeoutMs",
    "retries",
    "kafkaColumns",
    "includeHeaders",
    "dropRepeats",
    "repeatLookback",
)
_BATCH_OPTIONS: Final = (ENDING, "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM_OPTIONS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "commitOffsets")
NAMES: Final = _READ_OPTIONS + _BATCH_OPTIONS + _STREAM_OPTIONS
_DIRECTORIES: Final = ("path", "paths")
_KNOWN: Final = {name.lower(): name for name in NAMES}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """What to read of a cluster, and how.  A limit that is None is none."""

    connection: ClusterConnection
    selection: QueueSelection
    start: OffsetChoice
    end: OffsetChoice
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    partition_rows_max: int = PARTITION_ROWS_MAX
    expression: str = EVERYTHING
    expression_type: str = TAG
    group: str = DEFAULT_GROUP
    pull_count: int = PULL_COUNT
    pull_timeout_ms: int = PULL_TIMEOUT_MS
    retries: int = RETRIES
    drop_repeats: bool = False
    repeat_lookback: int = LOOKBACK_MAX

    def subscription(self, topic: str) -> Subscription:
        """Return what is wanted of a topic."""
        return build_subscription(topic, self.expression, self.expression_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStreamOptions:
    """How a stream of live topics goes on."""

    read: LiveOptions
    rows_max: int | None = None
    bytes_max: int | None = None
    commit_offsets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """Which columns there are."""

    kafka: bool = False
    headers: bool = False


def parse_columns(options: Mapping[str, str]) -> ColumnOptions:
    """Return which columns the options ask for; the schema depends on it."""
    given = lowered(options, _ALIASES)
    columns = ColumnOptions(
        kafka=parse_truth("kafkaColumns", given, default=False),
        headers=parse_truth("includeHeaders", given, default=False),
    )
    if columns.headers and not columns.kafka:
        raise OptionError("includeHeaders belongs to kafkaColumns; the map is in properties else")
    return columns


def parse_batch(options: Mapping[str, str]) -> LiveOptions:
    """Return what a batch reads; OptionError for an option that is unknown or means nothing."""
    given = lowered(options, _ALIASES)
    _refuse_unknown(given, _STREAM_OPTIONS, "says nothing about a batch")
    read = _parse(given, EARLIEST)
    if read.start.default.offset == LATEST and read.start.default.time_ms is None:
        raise OptionError(f"{STARTING} latest leaves nothing to read in a batch")
    if read.end.default.offset == EARLIEST:
        raise OptionError(f"{ENDING} earliest leaves nothing to read in a batch")
    return read


def parse_stream(options: Mapping[str, str]) -> LiveStreamOptions:
    """Return what a stream reads and how it goes on; OptionError as for a batch."""
    given = lowered(options, _ALIASES)
    _refuse_unknown(given, _BATCH_OPTIONS, "has no place in a stream: it has no end")
    commits = parse_truth("commitOffsets", given, default=False)
    if commits and "group" not in given:
        raise OptionError("commitOffsets needs the option group: whose offsets they are")
    return LiveStreamOptions(
        read=_parse(given, LATEST),
        rows_max=parse_count("maxOffsetsPerTrigger", given),
        bytes_max=parse_size("maxBytesPerTrigger", given),
        commit_offsets=commits,
    )


def _parse(given: Given, default_start: int) -> LiveOptions:
    expression, expression_type = _parse_expression(given)
    return LiveOptions(
        connection=parse_connection(given),
        selection=parse_selection(given),
        start=parse_start(given, default=default_start),
        end=parse_end(given),
        fail_on_data_loss=parse_truth("failOnDataLoss", given, default=True),
        partitions_min=parse_count("minPartitions", given),
        partition_rows_max=parse_count("maxRecordsPerPartition", given) or PARTITION_ROWS_MAX,
        expression=expression,
        expression_type=expression_type,
        group=_parse_group(given),
        pull_count=min(parse_count("pullBatchSize", given) or PULL_COUNT, PULL_COUNT),
        pull_timeout_ms=parse_count("pullTimeoutMs", given) or PULL_TIMEOUT_MS,
        retries=_parse_retries(given),
        drop_repeats=parse_truth("dropRepeats", given, default=False),
        repeat_lookback=parse_count("repeatLookback", given) or LOOKBACK_MAX,
    )


def _parse_expression(given: Given) -> tuple[str, str]:
    tags, sql = given.get("subexpression"), given.get("sqlfilter")
    if tags is not None and sql is not None:
        raise OptionError("subExpression chooses by tags, sqlFilter by SQL92; give one of them")
    text, kind = (tags, TAG) if sql is None else (sql, SQL92)
    try:
        build_subscription("any", text, kind)
    except ExpressionError as error:
        name = "subExpression" if sql is None else "sqlFilter"
        raise OptionError(f"{name}: {error}") from error
    return (text or EVERYTHING).strip() or EVERYTHING, kind


def _parse_group(given: Given) -> str:
    try:
        return checked_group(given.get("group", DEFAULT_GROUP))
    except UsageError as error:
        raise OptionError(f"group: {error}") from error


def _parse_retries(given: Given) -> int:
    text = given.get("retries", str(RETRIES)).strip()
    if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > RETRIES_MAX:
        raise OptionError(f"retries is a number from 0 to {RETRIES_MAX}, not {text!r}")
    return int(text)


def _refuse_unknown(given: Given, misplaced: tuple[str, ...], why: str) -> None:
    """Raise OptionError for a name that says nothing here; a value is never told."""
    for name in given:
        known = _KNOWN.get(name)
        if known in misplaced:
            raise OptionError(f"the option {known} {why}")
        if name in _DIRECTORIES:
            raise OptionError("either a cluster is read (namesrv) or directories (load), not both")
        if known is None:
            refuse_kafka_name(name)
            near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.5)
            hint = f"did you mean {_KNOWN[near[0]]}?" if near else f"known are {', '.join(NAMES)}"
            raise OptionError(f"unknown option {name!r} of live topics; {hint}")
