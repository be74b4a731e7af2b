"""The options of the sink; docs/spark-sink.md lists them."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flintmq.client.errors import UsageError
from flintmq.client.messaging.messages import SendStatus
from flintmq.client.options import checked_group
from flintmq.format.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels
from flintmq.format.errors import DelayLevelsError
from flintmq.format.topic_names import name_fault
from flintmq.spark.errors import OptionError
from flintmq.spark.live.cluster_options import (
    CONNECTION_OPTIONS,
    ClusterConnection,
    lowered,
    parse_connection,
)
from flintmq.spark.live.kafka_names import refuse_kafka_name
from flintmq.spark.live.repeat_mark import is_write_id
from flintmq.spark.options.option_values import (
    Given,
    parse_count,
    parse_names,
    parse_size,
    parse_truth,
)

PRODUCER_GROUP: Final = "flintmq-spark"
SEND_TIMEOUT_MS: Final = 3000
RETRIES: Final = 8
RETRIES_MAX: Final = 1000
IN_FLIGHT_MAX: Final = 8192
IN_FLIGHT_BYTES_MAX: Final = 32 << 20
BATCH_ID_MAX: Final = 10**18 - 1
_RATE: Final = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)

_NAMES: Final = (
    *CONNECTION_OPTIONS,
    "topic",
    "producerGroup",
    "sendTimeoutMs",
    "maxInFlight",
    "maxInFlightBytes",
    "maxMessagesPerSecond",
    "retries",
    "acceptStatus",
    "kafkaColumns",
    "messageDelayLevel",
    "writeId",
    "batchId",
)
_KNOWN: Final = {name.lower(): name for name in _NAMES}
# Spark hands what it was told about the write itself to the sink as well.
_OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How rows are written.  Times are milliseconds; ``rate`` is for one task."""

    connection: ClusterConnection
    topic: str | None = None
    producer_group: str = PRODUCER_GROUP
    send_timeout_ms: int = SEND_TIMEOUT_MS
    in_flight_max: int = IN_FLIGHT_MAX
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    rate: float | None = None
    retries: int = RETRIES
    accepted: frozenset[SendStatus] = field(default_factory=lambda: frozenset({SendStatus.SEND_OK}))
    kafka_columns: bool = False
    delay_levels: DelayLevels = field(
        default_factory=lambda: DelayLevels.parse(DEFAULT_DELAY_LEVELS)
    )
    write_id: str | None = None
    batch_id: int = 0


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Return the values of ``options``; OptionError for one that is unknown or means nothing."""
    given = lowered(options)
    _refuse_unknown(given)
    return SinkOptions(
        connection=parse_connection(given),
        topic=_topic(given),
        producer_group=_group(given),
        send_timeout_ms=parse_count("sendTimeoutMs", given) or SEND_TIMEOUT_MS,
        in_flight_max=parse_count("maxInFlight", given) or IN_FLIGHT_MAX,
        in_flight_bytes_max=parse_size("maxInFlightBytes", given) or IN_FLIGHT_BYTES_MAX,
        rate=_rate(given),
        retries=_number("retries", given, default=RETRIES, maximum=RETRIES_MAX),
        accepted=_accepted(given),
        kafka_columns=parse_truth("kafkaColumns", given, default=False),
        delay_levels=_delay_levels(given),
        write_id=_write_id(given),
        batch_id=_batch_id(given),
    )


def _refuse_unknown(given: Given) -> None:
    for name in given:
        if name in _KNOWN or name in _OF_SPARK:
            continue
        refuse_kafka_name(name)
        near = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.5)
        hint = f"did you mean {_KNOWN[near[0]]}?" if near else f"known are {', '.join(_NAMES)}"
        raise OptionError(f"unknown option {name!r} of the sink; {hint}")


def _topic(given: Given) -> str | None:
    topic = given.get("topic")
    if topic is not None:
        fault = name_fault(topic)
        if fault is not None:
            raise OptionError(f"topic={topic!r}: {fault}")
    return topic


def _group(given: Given) -> str:
    try:
        return checked_group(given.get("producergroup", PRODUCER_GROUP))
    except UsageError as error:
        raise OptionError(f"producerGroup: {error}") from error


def _number(name: str, given: Given, *, default: int, maximum: int) -> int:
    text = given.get(name.lower(), str(default)).strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) > maximum:
        raise OptionError(f"{name} is a number from 0 to {maximum}, not {text!r}")
    return int(text)


def _rate(given: Given) -> float | None:
    """Return messages a second; parts of one, where many tasks share a few."""
    text = given.get("maxmessagespersecond")
    if text is None:
        return None
    if not _RATE.fullmatch(text.strip()) or not float(text):
        raise OptionError(f"maxMessagesPerSecond is a number above 0, not {text!r}")
    return float(text)


def _accepted(given: Given) -> frozenset[SendStatus]:
    names = parse_names("acceptStatus", given, ",") or frozenset()
    allowed = {one.value for one in SendStatus}
    for name in names:
        if name not in allowed:
            raise OptionError(f"acceptStatus names some of {', '.join(sorted(allowed))}: {name!r}")
    return frozenset({SendStatus.SEND_OK, *map(SendStatus, names)})


def _delay_levels(given: Given) -> DelayLevels:
    try:
        return DelayLevels.parse(given.get("messagedelaylevel", DEFAULT_DELAY_LEVELS))
    except DelayLevelsError as error:
        raise OptionError(f"messageDelayLevel: {error}") from error


def _write_id(given: Given) -> str | None:
    text = given.get("writeid")
    if text is not None and not is_write_id(text):
        raise OptionError(f"writeId is 1 to 64 of A-Z a-z 0-9 _ -, not {text!r}")
    return text


def _batch_id(given: Given) -> int:
    if "batchid" in given and "writeid" not in given:
        raise OptionError("batchId counts the batches of a writeId; that is missing")
    return _number("batchId", given, default=0, maximum=BATCH_ID_MAX)
