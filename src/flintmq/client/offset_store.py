"""Where consumers keep how far they have come: at the broker, or in a file."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final, Protocol

from flintmq.client.errors import ClientError, NotFoundError, UsageError
from flintmq.format.codes import RequestCode
from flintmq.format.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import RemotingError
from flintmq.settings.durable_file import replace_durably

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from flintmq.client.instance import ClientInstance

logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5000
FILE_SIZE_MAX: Final = 64 << 20


class OffsetStore(Protocol):
    """Keeps the offset of the next message wanted, by queue."""

    async def load(self) -> None:
        """Get ready."""
        ...

    async def read(self, queue: MessageQueue) -> int | None:
        """Return what was committed; None if nothing was.

        Raises:
            ClientError, RemotingError: it cannot be told.
        """
        ...

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note an offset; it is committed by `persist`."""
        ...

    def noted(self, queue: MessageQueue) -> int | None:
        """Return the offset noted last."""
        ...

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Commit the offsets of ``queues``; failures are logged, and made good the next time."""
        ...

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit one offset, whatever was noted; a failure is raised."""
        ...

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted of a queue."""
        ...


class NotedOffsets:
    """Offsets in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note an offset."""
        known = self._offsets.get(queue)
        if known is None or not increase_only or offset > known:
            self._offsets[queue] = offset

    def noted(self, queue: MessageQueue) -> int | None:
        """Return the offset noted last."""
        return self._offsets.get(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted of a queue."""
        self._offsets.pop(queue, None)


class RemoteOffsets(NotedOffsets):
    """Offsets of a clustering group, kept by the brokers."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        super().__init__()
        self._client = client
        self._group = group
        self._committed: dict[MessageQueue, int] = {}
        # An offset on its way must not overtake a later one, above all not that of a hand-over.
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """There is nothing to load."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Ask the broker."""
        header = QueryConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
        )
        address = await self._client.routes.home(queue)
        try:
            answer = await self._client.call(
                address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_ms=TIMEOUT_MS
            )
        except NotFoundError:
            return None
        return OffsetResponse.decode(answer.ext_fields).offset

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Tell the brokers, of queues whose offset has moved."""
        async with self._turn:
            for queue in queues:
                offset = self._offsets.get(queue)
                if offset is None or self._committed.get(queue) == offset:
                    continue
                try:
                    await self._commit(queue, offset)
                except (ClientError, RemotingError) as error:
                    logger.warning("offset not committed: queue=%s reason=%s", queue, error)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit one offset and wait until the broker has it; a failure is raised."""
        async with self._turn:
            await self._commit(queue, offset)

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            broker_name=queue.broker_name,
        )
        address = await self._client.routes.home(queue)
        await self._client.call(
            address, RequestCode.UPDATE_CONSUMER_OFFSET, header, timeout_ms=TIMEOUT_MS
        )
        self._committed[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop what was noted of a queue."""
        super().forget(queue)
        self._committed.pop(queue, None)


class LocalOffsets(NotedOffsets):
    """Offsets of a broadcasting group, kept in a file of this client."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._written: dict[MessageQueue, int] = {}

    async def load(self) -> None:
        """Read the file; without one there are no offsets."""
        try:
            with self._path.open("rb") as file:
                content = file.read(FILE_SIZE_MAX + 1)
        except FileNotFoundError:
            return
        if len(content) > FILE_SIZE_MAX:
            raise UsageError(f"{self._path} has more than {FILE_SIZE_MAX} bytes")
        try:
            rows = json.loads(content)["offsets"]
            self._offsets = {
                MessageQueue(row["topic"], row["brokerName"], int(row["queueId"])): int(
                    row["offset"]
                )
                for row in rows
            }
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self._path} holds no offsets: {error}") from error
        self._written = dict(self._offsets)

    async def read(self, queue: MessageQueue) -> int | None:
        """Return what the file said, or was noted since."""
        return self._offsets.get(queue)

    async def persist(self, queues: Collection[MessageQueue]) -> None:
        """Write the file, with all queues ever consumed from, if an offset has moved."""
        if self._offsets == self._written:
            return
        rows = [
            {
                "topic": queue.topic,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "offset": offset,
            }
            for queue, offset in sorted(self._offsets.items())
        ]
        try:
            replace_durably(self._path, json.dumps({"offsets": rows}, indent=1).encode())
        except OSError as error:
            logger.warning("offsets not written: file=%s reason=%s", self._path, error)
        else:
            self._written = dict(self._offsets)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Note one offset and write the file."""
        self.update(queue, offset, increase_only=False)
        await self.persist([queue])

    def forget(self, queue: MessageQueue) -> None:
        """Keep it: the file is the only place that knows."""
