"""How transactions end: what a producer says of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flintmq.broker.record_copies import copy_of
from flintmq.broker.sending.put_answers import PUT_CODES, put_remark
from flintmq.broker.statistics.broker_statistics import COMMIT_COUNT, ROLLBACK_COUNT
from flintmq.broker.transactions.ending import final_message, op_record
from flintmq.format.errors import FormatError
from flintmq.format.message_id import decode_offset_id
from flintmq.format.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from flintmq.format.wire.codes import ResponseCode
from flintmq.format.wire.headers.transaction import EndTransactionRequest, ResumeCheckRequest
from flintmq.model.property_names import PRODUCER_GROUP, REAL_TOPIC, TRANSACTION_CHECK_TIMES
from flintmq.model.topics import TRANS_CHECK_MAX_TOPIC, TRANS_HALF_TOPIC
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.context import BrokerContext
    from flintmq.format.stored.record import Record
    from flintmq.store.results import PutResult

logger = logging.getLogger(__name__)


class TransactionProcessor:
    """Ends transactions."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def end(self, request: Request[EndTransactionRequest]) -> Answer | None:
        """Commit or roll back; a producer that does not know how it ended gets no answer.

        It is done to its end though the producer is gone, which may close once it has said it.
        """
        header = request.header
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._checked_half(header)
        if header.commit_or_rollback == TRANSACTION_ROLLBACK:
            self._note_decision(request, half, ROLLBACK_COUNT)
            return None
        self._context.puts.when_done(
            self._context.store.put(final_message(half, header.commit_log_offset)),
            lambda result: self._committed(request, half, result),
        )
        return None

    def _committed(
        self, request: Request[EndTransactionRequest], half: Record, result: PutResult
    ) -> None:
        if result.status.stored:
            self._note_decision(request, half, COMMIT_COUNT)
        else:
            request.answer(Answer(PUT_CODES[result.status], remark=put_remark(result)))

    def _note_decision(
        self, request: Request[EndTransactionRequest], half: Record, counter: str
    ) -> None:
        """Note that a half message is decided, and answer.

        Only after the commit: were the broker to die before, the producer would be asked again.
        """
        self._context.statistics.add(counter, half.properties.get(REAL_TOPIC, half.topic), 1)
        self._context.puts.when_done(
            self._context.store.put(op_record(self._context, half)),
            lambda op: self._noted(request, op),
        )

    def _noted(self, request: Request[EndTransactionRequest], op: PutResult) -> None:
        self._context.dispatch()
        if not op.status.stored:
            logger.error("transaction decided, but not noted: reason=%s", put_remark(op))
        request.answer(Answer())

    def _checked_half(self, header: EndTransactionRequest) -> Record:
        store = self._context.store
        half = store.look(header.commit_log_offset)
        # Its queue offset says which half message is decided, so it must not be a forged one.
        if half is None or not store.is_entered(half):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"
            )
        if half.properties.get(PRODUCER_GROUP) != header.producer_group:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.topic != TRANS_HALF_TOPIC:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The message is no half message")
        if half.queue_offset != header.tran_state_table_offset:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        return half

    async def resume_check(self, request: Request[ResumeCheckRequest]) -> Answer:
        """Have the producer asked again about a half message that was given up."""
        try:
            _, offset = decode_offset_id(request.header.msg_id)
        except FormatError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = self._context.store.look(offset)
        if record is None or record.topic != TRANS_CHECK_MAX_TOPIC:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no half message was given up under {offset}"
            )
        properties = record.properties | {TRANSACTION_CHECK_TIMES: "0"}
        message = copy_of(record, properties)
        message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
        result = await self._context.puts.put_done(self._context.store.put(message))
        if not result.ok:
            return Answer(ResponseCode.SYSTEM_ERROR, remark=put_remark(result))
        return Answer()
