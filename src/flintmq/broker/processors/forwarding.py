"""Questions of operators that only a client can answer: the broker passes them on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from flintmq.errors import FlintError
from flintmq.format.bodies.dialect import Members, dumps_body, loads_body, queue_from
from flintmq.format.codes import LanguageCode, RequestCode, ResponseCode
from flintmq.format.headers.clients import (
    ConsumeDirectlyRequest,
    ConsumerRunningInfoRequest,
    ConsumerStatusRequest,
    ResetOffsetRequest,
)
from flintmq.format.message_id import decode_offset_id
from flintmq.model.message_queue import MessageQueue
from flintmq.remoting import Answer, AnswerTimeoutError, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.clients import Client
    from flintmq.broker.parts import BrokerParts
    from flintmq.format.headers.codec import Header

CALL_TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5000
RESET_SINCE: Final = 28
CALL_BACK_SINCE: Final = 62
"""Releases from which on clients understand such requests."""


class ForwardingProcessor:
    """Passes requests on to clients."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

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
        piece = self._parts.store.select(offset)
        if piece is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no message under {header.msg_id}")
        with piece:
            body = bytes(piece.view)
        passed = ConsumeDirectlyRequest(
            consumer_group=header.consumer_group,
            client_id=header.client_id,
            msg_id=header.msg_id,
            broker_name=self._parts.config.name,
        )
        return await self._pass_on(client, RequestCode.CONSUME_MESSAGE_DIRECTLY, passed, body)

    def _client(self, group_name: str, client_id: str) -> Client:
        group = self._parts.consumers.get(group_name)
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
        """Send all members of a group back, or on, to a time."""
        parts, header = self._parts, request.header
        targets = self._targets(header)
        group = parts.consumers.get(header.group)
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
            client.connection.tell(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, told, body)
        return Answer(parts=[dumps_body({"offsetTable": targets})])

    def _targets(self, header: ResetOffsetRequest) -> dict[MessageQueue, int]:
        parts = self._parts
        topic = parts.topics.get(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"[reset-offset] topic {header.topic} does not exist"
            )
        targets = {}
        for queue_id in range(topic.write_queue_count):
            committed = parts.offsets.get(header.group, header.topic, queue_id)
            if committed is None or committed < 0:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"THe consumer group <{header.group}> not exist",
                )
            if header.timestamp == -1:
                wanted = parts.store.max_offset_in_queue(header.topic, queue_id)
            else:
                wanted = parts.store.offset_by_time(header.topic, queue_id, header.timestamp)
            wanted = max(wanted, 0)
            queue = MessageQueue(header.topic, parts.config.name, queue_id)
            targets[queue] = wanted if header.is_force else min(wanted, committed)
        return targets

    async def consumer_status(self, request: Request[ConsumerStatusRequest]) -> Answer:
        """Tell the offsets that the members of a group have reached."""
        header = request.header
        group = self._parts.consumers.get(header.group)
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
                found = Members(loads_body(answer.body), "a consumer's status")
                offsets = found.table("messageQueueTable")
                table[client.client_id] = {queue_from(k): int(v) for k, v in offsets.items()}
        return Answer(parts=[dumps_body({"consumerTable": table, "messageQueueTable": {}})])


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
