"""Transactions: a message that counts only if something local has worked."""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from flintmq.client.received import received
from flintmq.format.codes import RequestCode
from flintmq.format.headers.transaction import EndTransactionRequest
from flintmq.format.message_id import decode_offset_id
from flintmq.format.record import decode_record
from flintmq.format.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from flintmq.model.property_names import PRODUCER_GROUP, UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    from flintmq.client.messages import Message, ReceivedMessage, SendResult
    from flintmq.remoting import Request

logger = logging.getLogger(__name__)


class TransactionState(Enum):
    """How a transaction ended; UNKNOWN lets the broker ask later."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = 0


class TransactionListener(Protocol):
    """What a user does in a transaction.  Both may be plain functions or coroutine functions."""

    def execute(self, message: Message, argument: Any) -> Any:
        """Do the local part and return a TransactionState."""
        ...

    def check(self, message: ReceivedMessage) -> Any:
        """Say how the local part ended, as a TransactionState; a broker has asked."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """A message sent in a transaction, and how that ended here."""

    sent: SendResult
    state: TransactionState


async def ask(function: Callable[..., Any], *arguments: Any) -> TransactionState:
    """Return what a listener says; what is no state, and an exception, is UNKNOWN."""
    try:
        if inspect.iscoroutinefunction(function):
            state = await function(*arguments)
        else:
            state = await asyncio.to_thread(function, *arguments)
    except Exception:
        logger.exception("transaction listener failed")
        return TransactionState.UNKNOWN
    if isinstance(state, TransactionState):
        return state
    logger.warning("a transaction listener returned %r, which is no TransactionState", state)
    return TransactionState.UNKNOWN


def end_header(
    group: str,
    sent: SendResult,
    state: TransactionState,
) -> EndTransactionRequest:
    """Return the header that ends the transaction of a message just sent."""
    return EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=decode_offset_id(sent.offset_message_id)[1],
        commit_or_rollback=state.value,
        from_transaction_check=False,
        msg_id=sent.message_id,
        broker_name=sent.queue.broker_name,
    )


async def answer_check(
    request: Request[Any], group: str, listener: TransactionListener | None
) -> tuple[ReceivedMessage, TransactionState, EndTransactionRequest] | None:
    """Answer a broker that asks how a transaction of ``group`` ended.

    Return what was told; None if nobody here knows.
    """
    record = decode_record(request.body)
    properties = record.properties
    if listener is None or properties.get(PRODUCER_GROUP) != group:
        return None
    message = received(record, "")
    state = await ask(listener.check, message)
    asked = request.header
    header = EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=asked.tran_state_table_offset,
        commit_log_offset=asked.commit_log_offset,
        commit_or_rollback=state.value,
        from_transaction_check=True,
        msg_id=properties.get(UNIQ_KEY) or asked.msg_id or message.offset_message_id,
        transaction_id=asked.transaction_id,
    )
    request.connection.tell(RequestCode.END_TRANSACTION, header)
    return message, state, header
