"""Questions of operators that only a client can answer: the broker passes them on."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flintmq.errors import FlintError
from flintmq.format.message_id import decode_offset_id
from flintmq.format.wire.bodies.dialect import (
    BodyError,
    Members,
    dumps_body,
    loads_body,
    queue_from,
)
from flintmq.format.wire.codes import LanguageCode, RequestCode, ResponseCode
from flintmq.format.wire.headers.clients import (
    ConsumeDirectlyRequest,
    ConsumerRunningInfoRequest,
    ConsumerStatusRequest,
    ResetOffsetRequest,
)
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import (
    Answer,
    AnswerTimeoutError,
    ConnectionLostError,
    RefusedError,
    Request,
)

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.broker.tables.client_tables import Client
    from flintmq.format.wire.headers.codec import Header

CALL_TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5000
RESET_SINCE: Final = 28
CALL_BACK_SINCE: Final = 62
"""Releases from which on clients understand such requests."""


class ForwardingProcessor:
    """Passes requests on to clients."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def running_info(self, request: Request[ConsumerRunningInfoRequest]) -> Answer:
        """Ask a consumer how it is doing."""
        header = request.header
        client = self._client(header.consumer_group, header.client_id)
        return await self._pass_on(client, RequestCode.GET_CONSUMER_RUNNING_INFO, header)

    async def consume_directly(self, request: Request[ConsumeDirectlyRequest]) -> Answer:
        """Have a consumer consume one message now."""
        header = request.header
        client = self._client(header.consumer_group, header.client_id or "")
        _, offset = decode_offset_id(header.msg_id or "")
        piece = self._context.store.select(offset)
        if piece is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no message under {header.msg_id}")
        with piece:
            body = bytes(piece.view)
        passed = ConsumeDirectlyRequest(
            consumer_group=header.consumer_group,
            client_id=header.client_id,
            msg_id=header.msg_id,
            broker_name=self._context.config.name,
        )
        return await self._pass_on(client, RequestCode.CONSUME_MESSAGE_DIRECTLY, passed, body)

    def _client(self, group_name: str, client_id: str) -> Client:
        group = self._context.consumers.get(group_name)
        client = None if group is None else group.client(client_id)
        if client is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group_name}> <{client_id}> not online"
            )
        if client.version < CALL_BACK_SINCE:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish",
            )
        return client

    async def _pass_on(
        self, client: Client, code: int, header: Header, body: bytes = b""
    ) -> Answer:
        try:
            answer = await client.connection.call(code, header, body, timeout_ms=CALL_TIMEOUT_MS)
        except AnswerTimeoutError as error:
            raise RefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{client.client_id}> Timeout: {error}"
            ) from error
        except FlintError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return Answer(answer.code, remark=answer.remark, parts=[answer.body])

    # -- offsets -----------------------------------------------------------------------------

    def reset_offset(self, request: Request[ResetOffsetRequest]) -> Answer:
        """Tell all members of a group to go on from the messages of a certain time."""
        context, header = self._context, request.header
        targets = self._targets(header)
        group = context.consumers.get(header.group)
        if group is None or not group.members:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        for client in group.members.values():
            if client.version < RESET_SINCE:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the client {client.client_id} does not support this feature",
                )
        # Whether it was forced is no business of the clients.
        told = replace(header, is_force=False)
        for client in list(group.members.values()):
            body = _offsets_for(client.language, targets)
            with contextlib.suppress(ConnectionLostError):
                client.connection.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body)
        return Answer(parts=[dumps_body({"offsetTable": targets})])

    def _targets(self, header: ResetOffsetRequest) -> dict[MessageQueue, int]:
        context = self._context
        topic = context.topics.get(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"[reset-offset] topic {header.topic} does not exist"
            )
        targets = {}
        for queue_id in range(topic.write_queue_count):
            committed = context.offsets.get(header.group, header.topic, queue_id)
            if committed is None or committed < 0:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"THe consumer group <{header.group}> not exist",
                )
            if header.timestamp == -1:
                wanted = context.store.max_offset_in_queue(header.topic, queue_id)
            else:
                wanted = context.store.offset_by_time(header.topic, queue_id, header.timestamp)
            wanted = max(wanted, 0)
            queue = MessageQueue(header.topic, context.config.name, queue_id)
            targets[queue] = wanted if header.is_force else min(wanted, committed)
        return targets

    async def consumer_status(self, request: Request[ConsumerStatusRequest]) -> Answer:
        """Tell the offsets that the members of a group have reached."""
        header = request.header
        group = self._context.consumers.get(header.group)
        if group is None or not group.members:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: {header.group}",
            )
        table: dict[str, Any] = {}
        asked = ConsumerStatusRequest(topic=header.topic, group=header.group)
        for client in list(group.members.values()):
            if header.client_addr and header.client_addr != client.client_id:
                continue
            try:
                answer = await client.connection.call(
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                    asked,
                    timeout_ms=STATUS_TIMEOUT_MS,
                )
            except FlintError:
                continue  # Clients in some languages never answer this.
            if answer.code == ResponseCode.SUCCESS and answer.body:
                table[client.client_id] = _offsets_of(answer.body)
        return Answer(parts=[dumps_body({"consumerTable": table, "messageQueueTable": {}})])


def _offsets_of(body: bytes) -> dict[MessageQueue, int]:
    """Return the offsets by queue that a client told; BodyError if they are none."""
    offsets = Members(loads_body(body), "a consumer's status").table("messageQueueTable")
    try:
        return {queue_from(queue): int(offset) for queue, offset in offsets.items()}
    except (TypeError, ValueError):
        raise BodyError("a consumer's status: an offset is no integer") from None


def _offsets_for(language: LanguageCode, targets: dict[MessageQueue, int]) -> bytes:
    """Return the body of a reset in the form that a client understands."""
    if language is not LanguageCode.CPP:
        return dumps_body({"offsetTable": targets})
    rows = [
        {
            "brokerName": queue.broker_name,
            "offset": offset,
            "queueId": queue.queue_id,
            "topic": queue.topic,
        }
        for queue, offset in targets.items()
    ]
    return dumps_body({"offsetTable": rows})
