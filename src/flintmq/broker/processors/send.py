"""Storing messages: single ones and batches."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Final, ParamSpec

from flintmq.broker.sending.batch_bodies import (
    is_packed,
    items_flag,
    unpacked,
    unpacked_at_once,
)
from flintmq.broker.sending.put_answers import PUT_CODES, put_remark
from flintmq.broker.sending.received_messages import received_message
from flintmq.broker.sending.received_properties import received_properties
from flintmq.broker.sending.send_admission import (
    admit_send,
    check_batch,
    check_disk,
    check_transaction,
)
from flintmq.broker.sending.stored_answer import SharedAnswer, StoredAnswer
from flintmq.format.errors import CompressionError
from flintmq.format.stored.queue_claims import MULTI_DISPATCH
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.send import SendMessageRequest
from flintmq.model.message import MessageBatch, PutMessage
from flintmq.model.property_names import TRAN_MSG
from flintmq.model.topics import DLQ_PREFIX, RETRY_PREFIX
from flintmq.remoting import Answer, RefusedError, Request
from flintmq.remoting.processors import failed
from flintmq.remoting.refusal_counts import LARGE_BATCHES, PACKED_BATCHES, WAITING_SENDS
from flintmq.store.append_group.batch_items import is_large_batch
from flintmq.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from flintmq.broker.context import BrokerContext
    from flintmq.broker.sending.send_admission import AdmittedSend
    from flintmq.broker.waiting.large_batches import Preparing
    from flintmq.format.wire.headers.send_back import SendBackRequest
    from flintmq.model.group_config import GroupConfig
    from flintmq.store.appending.batch_preparation import PreparedBatch

_P = ParamSpec("_P")

MAX_RECONSUME_SINCE: Final = 121
"""Clients of earlier releases do not say how often a message may be tried again."""


def reconsume_times_max(
    request: Request[SendMessageRequest] | Request[SendBackRequest], group: GroupConfig
) -> int:
    """Return how often a message is tried again before it goes to the dead letters.

    The request says so; if it does not, the configuration of the group does.
    """
    wanted = request.header.max_reconsume_times
    if wanted is not None and request.command.version >= MAX_RECONSUME_SINCE:
        return wanted
    return group.retry_max_times


def _unpacking_failed(error: CompressionError) -> RefusedError:
    return RefusedError(ResponseCode.MESSAGE_ILLEGAL, f"batch refused: {error}")


def _unseen_dispatch() -> RefusedError:
    return RefusedError(
        ResponseCode.NO_PERMISSION,
        "with access control, messages of a compressed batch enter no further queues",
    )


def _too_many_wait() -> PutResult:
    reason = "too many sends wait for the next file"
    return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED, reason=reason)


class SendProcessor:
    """Stores what clients send."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._shared = SharedAnswer.of(context.config)

    def send(self, request: Request[SendMessageRequest]) -> Answer | None:
        """Store a message or batch; the answer may have to wait for the disk."""
        header = request.header
        if header.batch and is_packed(request.body, header.sys_flag):
            return self._send_packed(request)
        if header.batch and is_large_batch(request.body):
            return self._send_large(request)
        return self._send(request)

    def _send(
        self, request: Request[SendMessageRequest], prepared: PreparedBatch | None = None
    ) -> Answer | None:
        """Store a message or batch; a large batch was prepared before."""
        late = self._context.late_sends
        header = request.header
        try:
            if late.count and not late.is_retrying and not late.try_some():
                check_disk(self._context)
                if self._hold(request, prepared):
                    return None
                # Stored at once it would overtake the others.
                self._context.refused.note(WAITING_SENDS)
                return self._answer(_too_many_wait(), header.topic, header.queue_id)
            admitted = admit_send(self._context, header)
            is_first = not late.is_retrying and self._context.store.log.ask_for_first()
            if is_first and self._hold(request, prepared):
                return None
            result = self._put(request, admitted, prepared)
        except RefusedError as refusal:
            return self._refusal(refusal)
        if header.batch:
            self._context.hold_back(request.connection)
        if result.ok and (result.wait_for_flush or prepared is not None):
            self._answer_when_done(request, result, admitted.queue_id)
            return None
        if (
            result.status is PutStatus.CREATE_MAPPED_FILE_FAILED
            and self._context.store.is_next_file_late
        ):
            if late.wait_on() if late.is_retrying else self._hold(request, prepared):
                return None
            self._context.refused.note(WAITING_SENDS)
        return self._answer(result, header.topic, admitted.queue_id)

    def _hold(
        self, request: Request[SendMessageRequest], prepared: PreparedBatch | None = None
    ) -> bool:
        """Have a send wait for the next file of the log, unless too many do."""
        if prepared is not None:
            # As it is: prepared again it would be overtaken by those behind it.
            retry = functools.partial(self._answer_later, request, self._send, request, prepared)
            return self._context.late_sends.hold(prepared.held_size, retry)
        body = request.body

        size = len(body) + len(request.header.properties or "")
        retry = functools.partial(self._send_later, request, body)
        return self._context.late_sends.hold(size, retry)

    def _send_later(self, request: Request[SendMessageRequest], body: bytes) -> None:
        """Store and answer a send that had to wait."""
        # The connection has let go of the body, as of any request that is answered later.
        request.command.body = body
        try:
            self._answer_later(request, self.send, request)
        finally:
            request.command.body = b""

    def _answer_later(
        self,
        request: Request[SendMessageRequest],
        send: Callable[_P, Answer | None],
        *args: _P.args,
        **more: _P.kwargs,
    ) -> None:
        """Answer a request that nobody waits for any more in its turn."""
        try:
            answer = send(*args, **more)
        except Exception as error:
            answer = failed(request.command.code, error)
        if answer is not None:
            request.answer(answer)

    # -- unpacking ---------------------------------------------------------------------------

    def _send_packed(self, request: Request[SendMessageRequest]) -> Answer | None:
        """Store a batch that is compressed as a whole, unpacked now or in a thread."""
        context, header, body = self._context, request.header, request.body
        limit = context.store.config.max_message_size
        try:
            # Nothing is unpacked in vain.
            admit_send(context, header)
            check_batch(header)
            items = unpacked_at_once(body, header.sys_flag, limit=limit)
        except RefusedError as refusal:
            return self._refusal(refusal)
        except CompressionError as error:
            return self._refusal(_unpacking_failed(error))
        flag = header.sys_flag
        request.header = replace(header, sys_flag=items_flag(flag))
        if items is not None:
            if self._dispatches_unseen(items):
                return self._refusal(_unseen_dispatch())
            request.command.body = items
            return self.send(request)
        if context.packed_sends.hold(
            request.connection,
            len(body),
            functools.partial(unpacked, body, flag, limit=limit),
            functools.partial(self._send_unpacked, request),
        ):
            return None
        context.refused.note(PACKED_BATCHES)
        return self._refusal(
            RefusedError(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many packed batches wait")
        )

    def _send_unpacked(
        self, request: Request[SendMessageRequest], items: asyncio.Future[bytes]
    ) -> None:
        """Store a batch that was unpacked in a thread, or tell why it was not."""
        error = items.exception()
        if error is None and self._dispatches_unseen(items.result()):
            request.answer(self._refusal(_unseen_dispatch()))
        elif error is None:
            self._send_later(request, items.result())
        elif isinstance(error, CompressionError):
            request.answer(self._refusal(_unpacking_failed(error)))
        else:
            assert isinstance(error, Exception)
            request.answer(failed(request.command.code, error))

    def _dispatches_unseen(self, items: bytes) -> bool:
        """Whether items that access control could not read name queues of other topics."""
        return self._context.access is not None and MULTI_DISPATCH in items

    # -- large batches -----------------------------------------------------------------------

    def _send_large(self, request: Request[SendMessageRequest]) -> Answer | None:
        """Store a batch that may have very many messages: it is prepared in slices before."""
        context, header = self._context, request.header
        try:
            admitted = admit_send(context, header)
            batch = self._batch_of(request, admitted)
        except RefusedError as refusal:
            return self._refusal(refusal)
        # A queue that was chosen for it stays the same, and is looked at again then.
        request.header = replace(header, queue_id=admitted.queue_id)
        if context.large_batches.hold(
            request.connection,
            batch,
            lambda done: self._answer_later(request, self._send_prepared, request, done),
        ):
            return None
        context.refused.note(LARGE_BATCHES)
        return self._refusal(
            RefusedError(ResponseCode.SYSTEM_BUSY, "[OVERLOAD]too many large batches wait")
        )

    def _send_prepared(
        self, request: Request[SendMessageRequest], preparing: Preparing
    ) -> Answer | None:
        """Store a batch that was prepared, or tell why it was refused."""
        prepared = preparing.result()
        if isinstance(prepared, PutResult):
            return self._answer(prepared, request.header.topic, request.header.queue_id)
        return self._send(request, prepared)

    # -- storing -----------------------------------------------------------------------------

    def _put(
        self,
        request: Request[SendMessageRequest],
        admitted: AdmittedSend,
        prepared: PreparedBatch | None,
    ) -> PutResult:
        header, store = request.header, self._context.store
        if prepared is not None:
            prepared.batch.sys_flag = admitted.sys_flag  # The topic may have changed meanwhile.
            return store.put_prepared(prepared)
        if header.batch:
            return store.put_batch(self._batch_of(request, admitted))
        properties, text = received_properties(header.properties, self._context.config.cluster)
        target, queue_id = self._target_of(request, admitted.queue_id)
        message = received_message(
            PutMessage,
            request,
            topic=target,
            queue_id=queue_id,
            sys_flag=admitted.sys_flag,
            properties=properties,
            text=text,
            store_host=self._context.store_host,
        )
        if properties.get(TRAN_MSG, "").lower() == "true":
            check_transaction(self._context)
            from flintmq.broker.transactions.half_messages import half_of

            message = half_of(message)
        return store.put(message)

    def _batch_of(
        self, request: Request[SendMessageRequest], admitted: AdmittedSend
    ) -> MessageBatch:
        header = request.header
        check_batch(header)
        properties, text = received_properties(header.properties, self._context.config.cluster)
        return received_message(
            MessageBatch,
            request,
            topic=header.topic,
            queue_id=admitted.queue_id,
            sys_flag=admitted.sys_flag,
            properties=properties,
            text=text,
            store_host=self._context.store_host,
        )

    def _target_of(self, request: Request[SendMessageRequest], queue_id: int) -> tuple[str, int]:
        """Return topic and queue of a message; one that was tried too often is a dead letter."""
        header = request.header
        if not header.topic.startswith(RETRY_PREFIX):
            return header.topic, queue_id
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._context.groups.get(group)
        if config is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group}",
            )
        if (header.reconsume_times or 0) < reconsume_times_max(request, config):
            return header.topic, queue_id
        dead = DLQ_PREFIX + group
        self._context.topics.ensure(dead, 1)
        return dead, 0

    # -- answers -----------------------------------------------------------------------------

    def _answer_when_done(
        self, request: Request[SendMessageRequest], result: PutResult, queue_id: int
    ) -> None:
        """Answer when what was stored is as durable as promised, and its messages have names."""

        def answer(final: PutResult) -> None:
            request.answer(self._answer(final, request.header.topic, queue_id))

        context = self._context
        context.puts.when_done(
            result, lambda final: context.large_batches.name(final, lambda: answer(final))
        )

    def _shared_answer(self) -> SharedAnswer:
        config = self._context.config
        if config is not self._shared.config:
            self._shared = SharedAnswer.of(config)
        return self._shared

    def _refusal(self, refusal: RefusedError) -> Answer:
        return Answer(refusal.code, self._shared_answer().header, refusal.remark)

    def _answer(self, result: PutResult, topic: str, queue_id: int) -> Answer:
        shared = self._shared_answer()
        if result.ok:
            code, remark = ResponseCode.SUCCESS, None
        else:
            code, remark = PUT_CODES[result.status], put_remark(result)
            if not result.status.stored:
                return Answer(code, shared.header, remark)
        self._context.statistics.add_put(topic, queue_id, result.message_count, result.size)
        return StoredAnswer(code, shared, remark, result, queue_id)
