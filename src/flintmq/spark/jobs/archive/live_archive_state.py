"""What a broker says of itself: the sizes of its files, and what its state files would hold.

A restored store then serves with its topics and groups.  Offsets are kept for what the archive
has, and never beyond: an offset behind the end of a queue would pass over the next messages.
`consumerFilter.json` is left out, since no request asks for it; clients bring its contents anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from flintmq.format import fastjson
from flintmq.format.errors import FormatError
from flintmq.format.stored.consume_queue import UNIT_SIZE
from flintmq.format.wire.bodies.delays import WAITING_MEMBER
from flintmq.format.wire.bodies.dialect import loads_body
from flintmq.format.wire.codes import RequestCode
from flintmq.model.message_queue import MessageQueue
from flintmq.model.topics import SCHEDULE_TOPIC, WAITING_TOPIC
from flintmq.settings.property_files import ConfigError, read_properties
from flintmq.spark.live.cluster import Cluster
from flintmq.spark.live.errors import FalseAnswerError

CONSUMER_OFFSETS: Final = "consumerOffset.json"
DELAY_OFFSETS: Final = "delayOffset.json"
WAITING_STATE: Final = "deliverAt.json"
_REQUESTS: Final = {
    "topics.json": RequestCode.GET_ALL_TOPIC_CONFIG,
    "subscriptionGroup.json": RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    CONSUMER_OFFSETS: RequestCode.GET_ALL_CONSUMER_OFFSET,
    DELAY_OFFSETS: RequestCode.GET_ALL_DELAY_OFFSET,
}
_TABLE: Final = "offsetTable"
_SIZE_MAX: Final = (1 << 31) - 1
"""Java maps a file at once, so none is larger."""

QueueEnds = Mapping[tuple[str, int], int]
"""Where queues end, by topic and queue id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """A broker: its cluster, the sizes of its files, and its state by the names of files."""

    cluster: str
    log_file_size: int
    queue_file_size: int
    hash_slots: int
    index_entries: int
    state: Mapping[str, Any]


async def ask_broker(cluster: Cluster, queue: MessageQueue, *, cluster_name: str) -> BrokerFacts:
    """Ask the broker that has a queue.

    Raises:
        FalseAnswerError: an answer makes no sense.
        LiveError: the broker does not answer, or refuses.
    """
    name = queue.broker_name
    settings = _settings(name, await cluster.ask_home(queue, RequestCode.GET_BROKER_CONFIG))
    queue_file_size = _size(name, settings, "mappedFileSizeConsumeQueue")
    return BrokerFacts(
        cluster=cluster_name,
        log_file_size=_size(name, settings, "mappedFileSizeCommitLog"),
        # As brokers do: a file holds whole units.
        queue_file_size=-(-queue_file_size // UNIT_SIZE) * UNIT_SIZE,
        hash_slots=_size(name, settings, "maxHashSlotNum"),
        index_entries=_size(name, settings, "maxIndexNum"),
        state={
            file: _state(name, file, await cluster.ask_home(queue, code))
            for file, code in _REQUESTS.items()
        },
    )


def state_files(facts: BrokerFacts, ends: QueueEnds) -> dict[str, bytes]:
    """Return state files for a store that holds queues up to ``ends``."""
    state = dict(facts.state)
    state[CONSUMER_OFFSETS] = {_TABLE: _group_offsets(state[CONSUMER_OFFSETS], ends)}
    delayed = state.pop(DELAY_OFFSETS)
    levels = _delay_offsets(delayed, ends)
    waiting = _waiting_state(delayed, ends)
    if waiting:
        state[WAITING_STATE] = waiting
    # Without the delayed messages, a level begins anew with the first that comes.
    if levels:
        state[DELAY_OFFSETS] = {_TABLE: levels}
    return {name: fastjson.dumps(value).encode() for name, value in state.items()}


def _group_offsets(state: Mapping[str, Any], ends: QueueEnds) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for name, offsets in _members(state).items():
        topic = str(name).partition("@")[0]
        kept = {
            queue_id: min(offset, ends[topic, queue_id])
            for queue_id, offset in _numbers(offsets).items()
            if (topic, queue_id) in ends
        }
        if kept:
            found[str(name)] = kept
    return found


def _delay_offsets(state: Mapping[str, Any], ends: QueueEnds) -> dict[int, int]:
    """Return how far each delay level was delivered; level n waits in queue n - 1."""
    return {
        level: min(offset, ends[SCHEDULE_TOPIC, level - 1])
        for level, offset in _numbers(_members(state)).items()
        if (SCHEDULE_TOPIC, level - 1) in ends
    }


def _waiting_state(state: Mapping[str, Any], ends: QueueEnds) -> dict[str, Any]:
    """Return how far messages that name a time were delivered; a Java broker tells nothing."""
    told = state.get(WAITING_MEMBER)
    queues = told.get("queues") if isinstance(told, dict) else None
    kept = {
        int(name): progress
        for name, progress in (queues.items() if isinstance(queues, dict) else ())
        if str(name).isdecimal() and (WAITING_TOPIC, int(name)) in ends
    }
    # The restored log has offsets of its own, so its end says nothing.
    return {**told, "logEnd": 0, "queues": kept} if kept and isinstance(told, dict) else {}


def _members(state: Mapping[str, Any]) -> Mapping[Any, Any]:
    table = state.get(_TABLE)
    return table if isinstance(table, dict) else {}


def _numbers(table: Any) -> dict[int, int]:
    """Return a table from numbers to numbers; names may stand in quotes."""
    return {
        int(name): value
        for name, value in (table.items() if isinstance(table, dict) else ())
        if str(name).isdecimal() and isinstance(value, int)
    }


def _settings(broker: str, body: bytes) -> dict[str, str]:
    try:
        return read_properties(body)
    except ConfigError as error:
        raise FalseAnswerError(f"broker {broker}", f"its settings: {error}") from error


def _size(broker: str, settings: Mapping[str, str], name: str) -> int:
    text = settings.get(name, "").strip()
    if not text.isdecimal() or not 0 < int(text) <= _SIZE_MAX:
        raise FalseAnswerError(f"broker {broker}", f"its setting {name} is {text!r}")
    return int(text)


def _state(broker: str, file: str, body: bytes) -> dict[str, Any]:
    try:
        value = loads_body(body)
    except FormatError as error:
        raise FalseAnswerError(f"broker {broker}", f"{file}: {error}") from error
    if not isinstance(value, dict):
        raise FalseAnswerError(f"broker {broker}", f"{file} is no object")
    return value
