"""Finding messages by id, by key and by unique id, on all brokers that may have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from flintmq.client.errors import MessageNotFoundError, SystemFailureError, UsageError
from flintmq.client.messaging.message_decoding import decode_message
from flintmq.client.searching.broker_places import (
    ask_all,
    broker_places,
    fetch_cluster,
    fetch_route,
    route_places,
)
from flintmq.format.errors import MessageIdError
from flintmq.format.host import host_text
from flintmq.format.message_id import decode_offset_id
from flintmq.format.stored.pulled_records import decode_records
from flintmq.format.wire.codes import RequestCode, ResponseCode
from flintmq.format.wire.headers.query import QueryMessageRequest, ViewMessageRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flintmq.client.instance import ClientInstance
    from flintmq.client.messaging.messages import ReceivedMessage
    from flintmq.client.searching.broker_places import BrokerPlace
    from flintmq.errors import FlintError
    from flintmq.format.stored.record import Record

PAGE_COUNT: Final = 64
"""Messages that brokers give for one search by key, unless they are set up otherwise."""
FOUND_COUNT_MAX: Final = 100_000
SCANNED_COUNT_MAX: Final = 1_000_000
"""Messages that one broker may send for a search, however few of them have the key."""
END_OF_TIME_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySearch:
    """The messages that a search by key has found, newest first."""

    messages: Sequence[ReceivedMessage]
    scanned: int
    """How many messages brokers have sent: keys of one hash come together."""
    is_complete: bool
    """Whether there are no more of them within the times that were asked for."""
    failures: Sequence[tuple[str, FlintError]] = ()
    """The brokers that did not answer, and why."""


async def find_by_id(client: ClientInstance, offset_id: str) -> ReceivedMessage:
    """Return the message that an offset id names; MessageNotFoundError if it is not there.

    The id says which broker has it; only brokers that are registered are asked.
    """
    try:
        host, offset = decode_offset_id(offset_id)
    except MessageIdError as error:
        raise UsageError(str(error)) from error
    address = host_text(host)
    places = broker_places(await fetch_cluster(client))
    wanted = [one for one in places if one.address == address] or places

    async def ask(place: BrokerPlace) -> ReceivedMessage:
        header = ViewMessageRequest(offset=offset)
        answer = await client.call(place.address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        records = decode_records(answer.body)
        if not records:
            raise MessageNotFoundError(f"{place.label} answers without a message")
        return decode_message(records[0], place.broker)

    answers = await ask_all(wanted, ask)
    for _, message in answers.found:
        if message.offset_message_id == offset_id.upper():
            return message
    for _, failure in answers.failures:
        if type(failure) not in (SystemFailureError, MessageNotFoundError):
            raise failure
    raise MessageNotFoundError(f"no broker has the message {offset_id}; it may be deleted already")


async def find_by_key(
    client: ClientInstance,
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int = END_OF_TIME_MS,
    count_max: int = PAGE_COUNT,
    is_unique: bool = False,
) -> KeySearch:
    """Return the newest messages of a key, at most ``count_max`` of them.

    A broker gives 64 at a time; further ones are asked for by the time of the oldest.  With
    ``is_unique`` the key is the unique id that a producer has given.
    """
    if not 0 < count_max <= FOUND_COUNT_MAX:
        raise UsageError(f"count_max must be from 1 to {FOUND_COUNT_MAX}")
    search = _BrokerSearch(client, topic, key, begin_ms, count_max, is_unique=is_unique)

    async def ask(place: BrokerPlace) -> KeySearch:
        return await search.run(place, end_ms)

    answers = await ask_all(route_places(await fetch_route(client, topic)), ask)
    found = [one for _, one in answers.or_raise()]
    messages = sorted(
        (message for one in found for message in one.messages),
        key=lambda one: (-one.store_timestamp, one.queue.broker_name, -one.physical_offset),
    )
    return KeySearch(
        messages=messages[:count_max],
        scanned=sum(one.scanned for one in found),
        is_complete=not answers.failures
        and all(one.is_complete for one in found)
        and len(messages) <= count_max,
        failures=[(place.label, error) for place, error in answers.failures],
    )


async def find_by_unique_id(
    client: ClientInstance, topic: str, unique_id: str
) -> list[ReceivedMessage]:
    """Return the messages that a producer has given an id; several if it sent again."""
    found = await find_by_key(client, topic, unique_id, is_unique=True)
    if not found.messages:
        raise MessageNotFoundError(
            f"no message {unique_id} in {topic!r}; it may be deleted already"
        )
    return list(found.messages)


class _BrokerSearch:
    """One search by key; a broker is asked again for what is older than the oldest found."""

    def __init__(
        self,
        client: ClientInstance,
        topic: str,
        key: str,
        begin_ms: int,
        count_max: int,
        *,
        is_unique: bool,
    ) -> None:
        self._client = client
        self._topic = topic
        self._key = key
        self._begin_ms = begin_ms
        self._count_max = count_max
        self._is_unique = is_unique

    async def run(self, place: BrokerPlace, end_ms: int) -> KeySearch:
        """Search on one broker."""
        found: dict[int, ReceivedMessage] = {}
        seen: set[int] = set()
        is_complete = True
        while len(found) <= self._count_max and len(seen) < SCANNED_COUNT_MAX:
            page = await self._page(place.address, end_ms)
            new = [one for one in page if one.physical_offset not in seen]
            if not new:
                if len(page) < PAGE_COUNT:
                    break
                # More of one second than an answer holds: what is beyond cannot be had.
                is_complete = False
                end_ms = min(one.store_timestamp for one in page) // 1000 * 1000 - 1
                continue
            seen.update(one.physical_offset for one in new)
            for record in new:
                message = decode_message(record, place.broker)
                if self._is_wanted(message):
                    found[record.physical_offset] = message
            end_ms = min(one.store_timestamp for one in page)
        else:
            is_complete = False
        return KeySearch(messages=list(found.values()), scanned=len(seen), is_complete=is_complete)

    async def _page(self, address: str, end_ms: int) -> list[Record]:
        if end_ms < self._begin_ms:
            return []
        header = QueryMessageRequest(
            topic=self._topic,
            key=self._key,
            max_num=PAGE_COUNT,
            begin_timestamp=self._begin_ms,
            end_timestamp=end_ms,
            unique_key_query=True if self._is_unique else None,
        )
        answer = await self._client.call(
            address,
            RequestCode.QUERY_MESSAGE,
            header,
            accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        """Whether a message has the key itself, not only one of the same hash."""
        if message.queue.topic != self._topic:
            return False
        keys: Any = (message.message_id,) if self._is_unique else message.keys
        return self._key in keys
