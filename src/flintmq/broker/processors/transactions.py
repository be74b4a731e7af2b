"""How transactions end: what a producer says of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flintmq.broker.put_answers import PUT_CODES, put_remark
from flintmq.broker.record_copies import copy_of
from flintmq.broker.transactions import final_message, op_record
from flintmq.format.codes import ResponseCode
from flintmq.format.errors import FormatError
from flintmq.format.headers.transaction import EndTransactionRequest, ResumeCheckRequest
from flintmq.format.message_id import decode_offset_id
from flintmq.format.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from flintmq.model.property_names import PRODUCER_GROUP, TRANSACTION_CHECK_TIMES
from flintmq.model.topics import TRANS_CHECK_MAX_TOPIC, TRANS_HALF_TOPIC
from flintmq.remoting import Answer, RefusedError, Request

if TYPE_CHECKING:
    from flintmq.broker.parts import BrokerParts
    from flintmq.format.record import Record

logger = logging.getLogger(__name__)


class TransactionProcessor:
    """Ends transactions."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    async def end(self, request: Request[EndTransactionRequest]) -> Answer | None:
        """Commit a half message or forget it; nothing is answered where nothing is known."""
        header = request.header
        if header.commit_or_rollback not in (TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            return None
        half = self._checked_half(header)
        puts, store = self._parts.puts, self._parts.store
        if header.commit_or_rollback == TRANSACTION_COMMIT:
            result = await puts.put_done(store.put(final_message(half, header.commit_log_offset)))
            if not result.status.stored:
                return Answer(PUT_CODES[result.status], remark=put_remark(result))
        # Only now: were the broker to die before, the producer would be asked again.
        op = await puts.put_done(store.put(op_record(self._parts, half)))
        self._parts.dispatch()
        if not op.status.stored:
            logger.error("transaction decided, but not noted: reason=%s", put_remark(op))
        return Answer()

    def _checked_half(self, header: EndTransactionRequest) -> Record:
        half = self._parts.store.look(header.commit_log_offset)
        if half is None:
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
        """Ask again about a half message that was given up."""
        try:
            _, offset = decode_offset_id(request.header.msg_id)
        except FormatError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = self._parts.store.look(offset)
        if record is None or record.topic != TRANS_CHECK_MAX_TOPIC:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no half message was given up under {offset}"
            )
        properties = record.properties | {TRANSACTION_CHECK_TIMES: "0"}
        message = copy_of(record, properties)
        message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
        result = await self._parts.puts.put_done(self._parts.store.put(message))
        if not result.ok:
            return Answer(ResponseCode.SYSTEM_ERROR, remark=put_remark(result))
        return Answer()
