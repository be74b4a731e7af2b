"""Which queue a row goes to: always the same, however often the row is sent.

Only so can a reader of one queue tell copies.  The queues of a topic are chosen once for each
query, and kept on the name servers as key-value pairs, which Java's have too.  There the choice
outlives the driver, and queues that are added meanwhile do not change it.

    namespace  FLINTMQ_SINK
    key        QUERY@TOPIC
    value      BROKER:ID=FLOOR,ID=FLOOR;BROKER:…

Names of brokers are escaped as in a URL.  FLOOR is the end of the queue at that moment, so
readers need not look back beyond it.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import quote, unquote

from flintmq.client.assigning.consume_from import QueueBounds
from flintmq.client.errors import ClientError, NoNameServerError, ResponseError
from flintmq.client.instance import ClientInstance
from flintmq.client.producing.queue_choice import queue_for_key
from flintmq.client.routing.route_causes import explain_no_route
from flintmq.format.wire.bodies.dialect import Members, loads_body
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.command import Command
from flintmq.format.wire.headers.codec import Header
from flintmq.format.wire.headers.namesrv import (
    KvConfigRequest,
    KvConfigResponse,
    KvNamespaceRequest,
    PutKvConfigRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import RemotingError
from flintmq.spark.live.live_session import each
from flintmq.spark.sink.errors import SinkError
from flintmq.spark.sink.row_columns import OutgoingRow

logger = logging.getLogger(__name__)

NAMESPACE: Final = "FLINTMQ_SINK"
SETTLE_S: Final = 0.2
"""Between putting a choice and reading it back: another task may have put one at the same time,
and the last one counts for both."""

CHOICE_LENGTH_MAX: Final = 1 << 20
_PART: Final = r"[^:;=,]+:[0-9]{1,9}=[0-9]{1,18}(?:,[0-9]{1,9}=[0-9]{1,18})*"
_CHOICE: Final = re.compile(rf"{_PART}(?:;{_PART})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ChosenQueues:
    """The queues of a topic for one query, each with its floor, in a fixed order."""

    floors: Mapping[MessageQueue, int]
    _subsets: dict[tuple[str | None, int | None], tuple[MessageQueue, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def parse(cls, topic: str, text: str) -> Self:
        """Return what a name server has kept; SinkError if that is something else."""
        floors: dict[MessageQueue, int] = {}
        if len(text) > CHOICE_LENGTH_MAX or _CHOICE.fullmatch(text) is None:
            raise SinkError(f"the queues kept for {topic} mean nothing: {text[:100]!r}")
        for part in text.split(";"):
            broker, _, pairs = part.partition(":")
            for pair in pairs.split(","):
                queue_id, _, floor = pair.partition("=")
                floors[MessageQueue(topic, unquote(broker), int(queue_id))] = int(floor)
        return cls(floors)

    @property
    def text(self) -> str:
        """The value that a name server keeps for these queues."""
        parts = []
        for broker, pairs in itertools.groupby(
            self.floors.items(), key=lambda pair: pair[0].broker_name
        ):
            parts.append(
                f"{quote(broker, safe='')}:"
                + ",".join(f"{queue.queue_id}={floor}" for queue, floor in pairs)
            )
        return ";".join(parts)

    def choose(self, row: OutgoingRow, number: int) -> MessageQueue:
        """Return the queue of a row; ``number`` says whose turn it is without a key."""
        wanted = row.broker_name, row.queue_id
        queues = self._subsets.get(wanted)
        if queues is None:
            queues = self._subsets[wanted] = tuple(
                queue
                for queue in self.floors
                if row.broker_name in (None, queue.broker_name)
                and row.queue_id in (None, queue.queue_id)
            )
        if not queues:
            raise ValueError(
                f"the columns queueId and brokerName: topic {row.topic} has no queue "
                f"{_any(row.queue_id)} on broker {_any(row.broker_name)} among those that this "
                f"query writes to: {self.text[:500]}"
            )
        if row.sharding_key is not None:
            return queue_for_key(queues, row.sharding_key)
        return queues[number % len(queues)]


def _any(value: object) -> object:
    return "(any)" if value is None else value


class QueueChooser:
    """Chooses queues for one query, and remembers the choice."""

    def __init__(
        self,
        client: ClientInstance,
        query: str,
        chosen: Mapping[str, ChosenQueues] | None = None,
        *,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._client = client
        self._query = query
        self._chosen = dict(chosen or {})
        self._routed: set[str] = set()
        self._settle_s = settle_s

    async def queues(self, topic: str) -> ChosenQueues:
        """Return the queues of a topic, as they were chosen when the query first met it.

        Raises:
            ClientError, RemotingError: nobody could tell.
        """
        chosen = self._chosen.get(topic)
        if chosen is None:
            chosen = self._chosen[topic] = await self._settled(topic)
        if topic not in self._routed:
            # The client learns where brokers are, also for a topic that a message will create.
            await self._client.routes.publish_queues(topic)
            self._routed.add(topic)
        return chosen

    async def _settled(self, topic: str) -> ChosenQueues:
        text = await self._kept(topic)
        if text is None:
            found = await choose_queues(self._client, topic)
            # It is asked once more, so that little time lies between the answer and the put.
            text = await self._kept(topic)
            if text is None:
                await self._keep(topic, found.text)
                await asyncio.sleep(self._settle_s)
                text = await self._kept(topic)
        if text is None:
            raise SinkError(f"no name server keeps the queues chosen for {topic}")
        return ChosenQueues.parse(topic, text)

    def _key(self, topic: str) -> str:
        return f"{self._query}@{topic}"

    async def _kept(self, topic: str) -> str | None:
        """Return the choice that name servers keep; a server that lacks it is given it."""
        header = KvConfigRequest(namespace=NAMESPACE, key=self._key(topic))
        answers = await self._ask_all(RequestCode.GET_KV_CONFIG, header)
        values = [
            KvConfigResponse.decode(answer.ext_fields).value
            if answer.code == ResponseCode.SUCCESS
            else None
            for answer in answers
        ]
        found = next(filter(None, values), None)
        if found is not None and None in values:
            await self._keep(topic, found)
        return found

    async def _keep(self, topic: str, text: str) -> None:
        header = PutKvConfigRequest(namespace=NAMESPACE, key=self._key(topic), value=text)
        answers = await self._ask_all(RequestCode.PUT_KV_CONFIG, header)
        if all(answer.code != ResponseCode.SUCCESS for answer in answers):
            raise ResponseError.for_code(answers[0].code, answers[0].remark)

    async def forget(self) -> None:
        """Have the name servers forget what was chosen for this query, for all topics."""
        listing = KvNamespaceRequest(namespace=NAMESPACE)
        for answer in await self._ask_all(RequestCode.GET_KVLIST_BY_NAMESPACE, listing):
            if answer.code != ResponseCode.SUCCESS:
                continue
            pairs = Members(loads_body(answer.body), "key-value pairs").table("table")
            for key in pairs:
                if str(key).startswith(self._key("")):
                    header = KvConfigRequest(namespace=NAMESPACE, key=str(key))
                    await self._ask_all(RequestCode.DELETE_KV_CONFIG, header)

    async def _ask_all(self, code: int, header: Header) -> list[Command]:
        """Ask every name server that can be reached, in one order for everybody."""
        client = self._client
        answers = []
        failures = []
        for address in sorted(client.servers.addresses):
            try:
                answers.append(
                    await client.remoting.call(
                        address, code, header, timeout_ms=client.options.request_timeout_ms
                    )
                )
            except RemotingError as error:
                failures.append(str(error))
        if not answers:
            raise NoNameServerError("no name server can be reached: " + "; ".join(failures))
        return answers


async def choose_queues(client: ClientInstance, topic: str) -> ChosenQueues:
    """Return the queues that a topic has now, with their ends."""
    queues = await client.routes.publish_queues(topic)
    if not queues:
        raise await explain_no_route(topic, client.servers, client.routes)
    bounds = QueueBounds(client)
    ends = await each(queues, lambda queue: _end(bounds, queue))
    return ChosenQueues(dict(zip(queues, ends, strict=True)))


async def _end(bounds: QueueBounds, queue: MessageQueue) -> int:
    try:
        return max(0, await bounds.end(queue))
    except (ClientError, RemotingError) as error:
        # A topic that the first message will create, or a broker that is away: readers may have
        # to look back further, and that is all.
        logger.debug("end of queue not told: queue=%s reason=%s", queue, error)
        return 0
